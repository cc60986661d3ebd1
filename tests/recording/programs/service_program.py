"""Ranks that a service starts, as Slurm's does: they are none of their launcher's descendants.

``serve SOCKET`` starts what it is asked for, and ends it when it is told to.  ``launch SOCKET
HOW COMMAND ...`` asks for two ranks of the command and waits; at SIGTERM it has them ended if
HOW is ``asks``, and takes no notice if it is ``deaf``.
"""

import json
import os
import signal
import socket
import subprocess
import sys

SIZE = 2


def serve(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    ranks = []
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile() as file:
            for line in file:
                asked = json.loads(line)
                if not asked:
                    for rank in ranks:
                        rank.kill()
                        rank.wait()
                    print("ended", flush=True)
                for rank in range(SIZE) if asked else ():
                    environment = {**asked["environment"], "RANK": str(rank)}
                    environment["WORLD_SIZE"] = str(SIZE)
                    ranks.append(subprocess.Popen(asked["words"], env=environment))


def launch(path, how, words):
    service = socket.socket(socket.AF_UNIX)
    service.connect(path)
    file = service.makefile("w")

    def ask(content):
        print(json.dumps(content), file=file, flush=True)

    def leave(*_):
        ask({})
        os._exit(143)

    signal.signal(signal.SIGTERM, leave if how == "asks" else signal.SIG_IGN)
    ask({"environment": dict(os.environ), "words": words})
    while True:
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        launch(sys.argv[2], sys.argv[3], sys.argv[4:])
