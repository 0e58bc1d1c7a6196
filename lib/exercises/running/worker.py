"""The confined process: it runs the code of one submission, and answers what it is asked.

It is started by `process`, or by `lib.grading.confine` with no key of the course in sight. It makes
no verdict: it is given inputs, calls the function that it is told to call, and returns what came.
Whatever code does in here, to this file too, it can do no more than return other values.

    python worker.py SETTINGS    # JSON; frames of `wire` come on stdin, answers go to stdout
"""

import __future__

import ast
import itertools
import json
import os
import sys
import types
import warnings
from importlib.machinery import ModuleSpec  # in `find_spec` the import would ask `find_spec`

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
import wire

ANSWER = "answer.py"  # what a traceback calls the code of an answer
TEXT = 600  # characters of an exception's message that are told


# --- What is asked -------------------------------------------------------------------------------


class Worker:
    """State of the process: the names that the submission's code has made."""

    def __init__(self, inbox, outbox):
        self.inbox, self.outbox = inbox, outbox
        self.told = []  # what the judge has not been told yet
        self.keys = itertools.count()  # of numbers and arrays
        self.do_reset()

    def serve(self):
        """Answer one request after the other, until there are no more."""
        while True:
            request = wire.receive(self.inbox, self.received)
            try:
                do = getattr(self, f"do_{request['do']}")
                given = request.get("with", {})
                if request["do"] in ("cell", "reset"):  # what these set is for the whole process
                    answer = do(**given)
                else:  # values are judged, not warnings
                    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
                        answer = do(**given)
            except BaseException as error:  # SystemExit and KeyboardInterrupt too
                answer = raised(error)
            self.answer(answer)

    def answer(self, answer):
        """Send an answer; one that cannot be sent is told as an error."""
        try:
            wire.send(self.outbox, answer, self.sent)
        except wire.WireError as error:
            wire.send(self.outbox, {"raised": ["ValueError", f"what it returns: {error}"]})

    def do_reset(self):
        """Forget all names, as a new kernel would, and what was set for the whole process."""
        self.names = {
            "__name__": "__main__",
            "get_ipython": lambda: Anything("IPython"),
            "display": lambda *objects, **options: None,
        }
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
        return {}

    def do_cell(self, source):
        """Run a cell, statement by statement; return what the first one that failed raised."""
        failed, flags = None, 0
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                for name in statement.names:
                    flags |= getattr(getattr(__future__, name.name, None), "compiler_flag", 0)
            try:
                # A file that exists, empty: Numba keeps kernels of no other.
                code = compile(ast.Module([statement], []), ANSWER, "exec", flags, True)
                exec(code, self.names)
            except BaseException as error:
                failed = failed or raised(error)
        return failed or {}

    def do_look(self, name):
        """Return what a name stands for."""
        if name not in self.names:
            return {"missing": True}
        return {"value": self.names[name]}

    def do_call(self, name, arguments, plainly):
        """Call a function; return what came, and its arguments if it has changed them."""
        function = self.names[name]
        if plainly:
            from twins import source_of

            function = source_of(function)
        before = wire.encode(arguments, self.sent)
        returned = function(*arguments)
        same = wire.encode(arguments, self.sent) == before
        return {"value": returned} if same else {"value": returned, "after": arguments}

    def do_calls(self, name, arguments):
        """Call a function many times; return all that came."""
        return {"value": [self.names[name](*some) for some in arguments]}

    def do_count(self, name, arguments):
        """Run a kernel on numbers that the judge keeps: what it does with them, the judge does."""
        import twins

        tools = twins.Tools(self.number, self.apply, self.new)
        self.told, self.keys = [], itertools.count(len(arguments))
        twins.twin(twins.source_of(self.names[name]), tools)(*arguments)
        return {"told": self.told}

    def do_compiled(self, name, arguments):
        """Call a compiled kernel; return its arguments and whether it was compiled."""
        kernel = self.names[name]
        kernel(*arguments)
        return {"value": bool(kernel.nopython_signatures), "after": arguments}

    # --- What the submission's code asks of the judge ---

    def ask(self, what, *operands):
        """Let the judge do something; return or raise what came of it."""
        told, self.told = self.told, []
        question = {"ask": what, "operands": list(operands), "told": told}
        wire.send(self.outbox, question, self.sent)
        reply = wire.receive(self.inbox, self.received)
        if "raised" in reply:
            name, text = reply["raised"]
            raise ERRORS.get(name, ValueError)(text)
        return reply["value"]

    def tell(self, what, *operands):
        """Let the judge do something whose result need not be known here; return its key."""
        if len(self.told) >= 1000:
            self.ask("nothing")
        key = next(self.keys)
        self.told.append([what, key, *operands])
        return key

    def number(self, value=0.0):
        """Return a number that counts."""
        return value if type(value) is Number else Number(self, self.tell("number", value))

    def apply(self, name, x):
        """Return a function of one number."""
        return Number(self, self.tell("apply", name, x))

    def new(self, shape, value):
        """Return an array that counts."""
        shape = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        return Array(self, self.tell("new", shape, value), *shape)

    # --- What passes ---

    def sent(self, value):
        """Return a tag and a value in place of one of the objects that stand for the judge's."""
        kind = type(value)
        if kind is Given or kind is Number or kind is Array:
            return kind.__name__, value.key
        if kind is slice:
            return "slice", [value.start, value.stop, value.step]
        if kind.__name__ == "LayerWeights" and kind.__module__ == "lib.layer":
            return "Weights", dict(vars(value))
        return None

    def received(self, tag, value):
        """Return an object that stands for one of the judge's."""
        if tag == "Given":
            return Given(self, value)
        if tag == "Number":
            return Number(self, value)
        if tag == "Array":
            return Array(self, *value)
        if tag == "Weights":
            from lib.layer import LayerWeights

            return LayerWeights(**value)
        raise wire.WireError(tag)


ERRORS = {e.__name__: e for e in (IndexError, TypeError, ZeroDivisionError, OverflowError)}


def raised(error):
    """Return what an exception says, for the judge."""
    name = type(error).__name__
    name = "SyntaxError" if name == "_IncompleteInputError" else name
    try:
        text = str(error)[:TEXT]
    except BaseException:
        text = ""
    return {"raised": [name, text]}


# --- Objects that stand for the judge's ----------------------------------------------------------


class Given:
    """A function among the arguments: the judge runs it."""

    def __init__(self, worker, key):
        self.worker, self.key = worker, key

    def __call__(self, *arguments):
        """Let the judge run it."""
        return self.worker.ask("given", self.key, *arguments)


class Number:
    """A number that only the judge knows."""

    __slots__ = ("key", "worker")
    __array_ufunc__ = None
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, worker, key):
        self.worker, self.key = worker, key

    def __pos__(self):
        return self


def _operator(name, reflected=False):
    def method(self, *others):
        operands = (*others, self) if reflected else (self, *others)
        return Number(self.worker, self.worker.tell(name, *operands))

    return method


def _question(name):
    return lambda self, *others: self.worker.ask(name, self, *others)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Number, f"__{_name}__", _operator(_name))
    setattr(Number, f"__r{_name}__", _operator(_name, reflected=True))
for _name in ("neg", "abs"):
    setattr(Number, f"__{_name}__", _operator(_name))
for _name in ("bool", "lt", "le", "gt", "ge", "eq", "ne"):  # on these it depends what comes next
    setattr(Number, f"__{_name}__", _question(_name))


class Array:
    """An array of such numbers."""

    __array_ufunc__ = None

    def __init__(self, worker, key, *shape):
        self.worker, self.key, self.shape = worker, key, shape
        self.ndim, self.size, self.dtype = len(shape), int(np.prod(shape)), np.dtype(np.float32)

    @property
    def T(self):
        """The same elements, with the axes in reverse."""
        key = self.worker.tell("transpose", self)
        return Array(self.worker, key, *reversed(self.shape))

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, key):
        shape = self._part(key)
        made = self.worker.tell("get", self, key)
        return Array(self.worker, made, *shape) if shape else Number(self.worker, made)

    def __setitem__(self, key, value):
        if isinstance(value, Array) and value.shape != self._part(key):
            raise ValueError(f"cannot put shape {value.shape} into shape {self._part(key)}")
        self.worker.tell("set", self, key, value)

    def _part(self, key):
        """Return the shape of a part; an index beyond the end is an error here already."""
        return np.broadcast_to(np.float32(0), self.shape)[key].shape

    def fill(self, value):
        """Put one value into every element."""
        self[...] = value


class Anything(types.ModuleType):
    """A module whose every name is a function that takes anything and does nothing."""

    __path__ = []  # noqa: RUF012  a package, of no files

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: None


class Nothing:
    """Finds the course's exercises, which are not in here, so that importing them does no harm."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return where to find a module of the exercises: here."""
        if name.partition(".exercises")[0] == "lib" and name != "lib":
            return ModuleSpec(name, Nothing, is_package=True)  # pyright: ignore[reportArgumentType]
        return None

    @staticmethod
    def create_module(spec):
        """Return a module that has every name."""
        return Anything(spec.name)

    @staticmethod
    def exec_module(module):
        """Leave it as it is."""


# --- Closing the doors ---------------------------------------------------------------------------


def limit(memory, seconds, file_bytes):
    """Set limits that nothing in this process can lift again; as far as the system knows them."""
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {
        "RLIMIT_AS": memory,
        "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": file_bytes,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }
    for name, value in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):  # macOS has no limit on addresses
            continue


# System calls that are refused, by machine: those that start a process (fork, vfork, execve,
# execveat), shmget, msgget and semget, whose memory no limit counts, and those that change what is
# seen (mount and its kin, unshare, setns, chroot, ptrace, bpf). clone is let pass where it makes a
# thread; clone3 is said not to exist, so that libraries fall back to clone, whose flags can be
# read. Numbers: Linux, arch/*/entry/syscalls.
_ANY_MACHINE = (428, 429, 430, 431, 432, 442, 425)  # open_tree … fsmount, mount_setattr, io_uring
_X86 = (57, 58, 59, 322, 29, 68, 64, 165, 166, 155, 161, 272, 308, 101, 321, *_ANY_MACHINE)
_ARM = (221, 281, 194, 186, 190, 40, 39, 41, 51, 97, 268, 117, 280, *_ANY_MACHINE)
CALLS = {"x86_64": (0xC000003E, 56, _X86), "aarch64": (0xC00000B7, 220, _ARM)}
CLONE3 = 435


def forbid_processes():
    """Refuse every further process, by a seccomp filter; return whether the system knows that."""
    import ctypes
    import platform
    import struct

    if sys.platform != "linux" or platform.machine() not in CALLS:
        return False
    arch, clone, refused = CALLS[platform.machine()]
    load, equal, least, any_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06
    allowed, denied, unknown = 0x7FFF0000, 0x00050001, 0x00050026  # …, EPERM, ENOSYS
    # Each line: what to do, lines to skip if true, lines to skip if false, an operand.
    program = [
        (load, 0, 0, 4), (equal, 1, 0, arch), (end, 0, 0, denied),  # calls of another machine
        (load, 0, 0, 0), (least, 0, 1, 0x40000000), (end, 0, 0, denied),
        (equal, 0, 1, CLONE3), (end, 0, 0, unknown),
        *(line for call in refused for line in ((equal, 0, 1, call), (end, 0, 0, denied))),
        (equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 1, 0, 0x00010000),  # CLONE_THREAD
        (end, 0, 0, denied), (end, 0, 0, allowed),
    ]  # fmt: skip
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, filtered = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0):
        return False
    return not libc.prctl(seccomp, filtered, ctypes.create_string_buffer(header, len(header)), 0, 0)


def end_with_parent():
    """Have Linux end this process when the one that started it ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def main():
    """Close the doors, then serve."""
    end_with_parent()
    settings = json.loads(sys.argv[1])
    # What the submission prints goes nowhere; the lines to the judge are known to this file alone.
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.chdir(settings["folder"])
    os.close(os.open(ANSWER, os.O_CREAT | os.O_WRONLY))
    warnings.simplefilter("ignore")
    sys.path.append(settings["course"])
    sys.meta_path.insert(0, Nothing)
    if not settings["numba"]:
        # The course's functions then run their definitions.
        sys.modules["numba"] = None  # pyright: ignore[reportArgumentType]
    sys.argv[:] = [""]
    limit(settings["memory"], settings["seconds"], settings["file_bytes"])
    told = {"ready": True, "no_processes": settings["processes"] or forbid_processes()}
    wire.send(outbox, told)
    try:
        Worker(inbox, outbox).serve()
    except (EOFError, BrokenPipeError):
        os._exit(0)


if __name__ == "__main__":
    main()
