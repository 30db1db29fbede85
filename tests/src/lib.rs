//! Harness of the black-box tests.
