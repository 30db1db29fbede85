//! Faults found from outside: hostile and careless clients: the cost of an answer is bounded by its request.
