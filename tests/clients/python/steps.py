"""What the Python clients share: arguments, the lines they print, and a digest of what they read.

What is right is not here: the same program runs against a real Kafka, and the outcomes are compared.
"""

import logging
import sys
import threading
import time
import zlib

BOOTSTRAP, PREFIX = sys.argv[1], sys.argv[2]
RECORDS = 20
PARTITIONS = 4
LIMIT_S = 45
# The timestamp of the first record that the look-up by time is tried on: a whole second, an hour ago.
TIME_BASE_MS = int(time.time()) * 1000 - 3_600_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

logging.disable(logging.CRITICAL)


def name(stem):
    """A name of this run."""
    return f"{PREFIX}-{stem}"


def tell(step, outcome):
    """Prints the outcome of a step."""
    print(f"{step}\t{outcome}", flush=True)


def failure(error):
    """How a failed step is shown: the class alone where the text may differ from run to run."""
    return f"failed: {type(error).__name__}"


def step(what, run):
    """Runs one step and prints its outcome; a step that takes far too long is given up."""
    outcome = ["hangs"]

    def target():
        try:
            outcome[0] = run()
        except Exception as error:  # noqa: BLE001 - every failure is an outcome
            outcome[0] = failure(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(2 * LIMIT_S)
    tell(what, outcome[0])


def digest(values):
    """Describes values in the order they were read."""
    return f"{len(values)} records, crc {zlib.crc32(','.join(values).encode()):08x}"


def until(what, holds):
    """Waits until a condition holds."""
    end = time.time() + LIMIT_S
    while not holds():
        if time.time() > end:
            raise TimeoutError(what)
        time.sleep(0.05)
