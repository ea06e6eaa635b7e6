"""A rank of tests/tool/hosts_deaths.sh: steps of a reducer, over and over. When a rank is gone it
shrinks and goes on. It ends where two ranks are left and have made some steps. Tells on standard
output: its pid, steps, who is gone after how long, a checksum of all updates."""

import os
import sys
import time
import zlib

import numpy as np

import rill

DIM, LAST_STEPS = 20000, 30


def recover(comm, reducer):
    """The communicator of those that live, and whether the step is void."""
    old = [comm]
    while True:
        try:
            old.append(old[-1].shrink())
            again = reducer.move(old[-1])
            for one in old[:-1]:
                one.free()
            return old[-1], again
        except rill.PeerError:
            continue


def main():
    comm = rill.init()
    rank = comm.rank
    print(f"pid {os.getpid()}", flush=True)
    reducer = rill.Reducer(comm, DIM, "float32", density=0.05)
    checksum, step, since_two = 0, 0, 0
    while since_two < LAST_STEPS:
        rng = np.random.default_rng([rank, step])
        gradient = rng.integers(-8, 9, DIM).astype(np.float32)
        update = np.zeros(DIM, np.float32)
        began = time.monotonic()
        try:
            reducer.step(gradient, update)
        except rill.PeerError:
            knew = time.monotonic() - began
            gone = comm.failed()
            try:
                comm, again = recover(comm, reducer)
            except rill.RillError as error:
                print(f"out: {error}", flush=True)
                return 3
            went = time.monotonic() - began
            print(f"gone {gone} known {knew:.2f} on {went:.2f} ranks {comm.size}", flush=True)
            if again:
                continue
            reducer.update(update)
        checksum = zlib.crc32(update.tobytes(), checksum)
        step += 1
        since_two += comm.size == 2
        print(f"step {step} ranks {comm.size}", flush=True)
        time.sleep(0.02)
    print(f"done {step} {checksum}", flush=True)
    reducer.free()
    comm.free()
    return 0


if __name__ == "__main__":
    sys.exit(main())
