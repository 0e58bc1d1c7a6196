"""A process that forks after its kernels ran: parent and child compute the same bits.

usage: python -m tests.machines.forked
"""

import os

from tests.machines.sample import digest

if __name__ == "__main__":
    before = digest()
    child = os.fork()
    if child == 0:
        os._exit(0 if digest() == before else 3)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, f"the child ended with {code}"
    assert digest() == before
    print(f"parent and child: {before}")
