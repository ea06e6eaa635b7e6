"""Ranks that are processes, started fast: forks of one process that has PyTorch imported already.

``Ranks(...).run(script, environments)`` gives status and output of each. A fork runs the script as
``python script`` would: rill is imported there, and the interpreter ends as usual.
"""

import json
import os
import signal
import subprocess
import sys
import time


class Ranks:
    """The process that is forked."""

    def __init__(self, environment):
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, script, environments, limit_s):
        """A status (negative: of a signal) and the output of each."""
        outputs = [f"{script}.{number}.out" for number in range(len(environments))]
        request = [str(script), environments, outputs, limit_s]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        texts = []
        for path in outputs:
            with open(path) as file:
                texts.append(file.read())
        return list(zip(codes, texts))

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def _become(script, environment, output):
    """In the fork."""
    os.setpgid(0, 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    sys.argv = [script]
    sys.path[0] = os.path.dirname(script)


def _wait(children, limit_s):
    codes, end = {}, time.monotonic() + limit_s
    while len(codes) < len(children):
        for child in children:
            if child in codes:
                continue
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[child] for child in children]


def serve():
    """Returns in forks only, with what they are to run."""
    import numpy  # noqa: F401
    import torch.distributed  # noqa: F401
    import torch.nn.parallel  # noqa: F401
    import torch.utils.data  # noqa: F401

    while True:
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        script, environments, outputs, limit_s = json.loads(line)
        children = []
        for environment, output in zip(environments, outputs):
            child = os.fork()
            if child == 0:
                _become(script, environment, output)
                return script
            children.append(child)
        print(json.dumps(_wait(children, limit_s)), flush=True)


if __name__ == "__main__":
    import runpy

    runpy.run_path(serve(), run_name="__main__")
