"""What the scripts beside this file share: their tests are run by name, each in a process of its own.

Without a word a script prints the names of its tests, one a line; with a name it runs that test, and ends with another
status than 0 where the test raises.
"""

import sys


def main(module):
    """Lists or runs the functions of a script whose names begin with `test_`."""
    tests = {name: value for name, value in vars(module).items() if name.startswith("test_")}
    if len(sys.argv) == 1:
        print("\n".join(tests))
    else:
        tests[sys.argv[1]]()
