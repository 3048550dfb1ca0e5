"""The package and the library as PyTorch uses them, on the simulated driver and without PyTorch.

Without a word it prints its scenarios, with one it runs that scenario: each in a process of its own, which must end by
itself. `Torch` stands for what of PyTorch the package touches.
"""

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import types
import warnings
from pathlib import Path

MIB = 1 << 20
DEVICES = 2
SCENARIOS = {}


def scenario(body):
    SCENARIOS[body.__name__] = body
    return body


class Driver:
    """The streams of the simulated driver, which PyTorch makes itself."""

    def __init__(self):
        self.driver = ctypes.CDLL(os.environ["CUDA_SYS_LIBCUDA"])
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        assert status == 0, (name, status)

    def enter(self, device=0):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def current(self):
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    def stream(self, device=0):
        self.enter(device)
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value


class Pluggable:
    """Stands for `torch.cuda.memory.CUDAPluggableAllocator`: the same signatures, and the same map of what it gave."""

    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.alloc = ctypes.CFUNCTYPE(address, size, number, address)((alloc, library))
        self.free = ctypes.CFUNCTYPE(None, address, size, number, address)((free, library))
        self.lock, self.given = threading.Lock(), {}
        self.hooks = {}

    def allocator(self):
        return self

    def __getattr__(self, name):
        signatures = {
            "set_init_fn": [ctypes.c_int], "set_reset_fn": [], "set_memory_fraction_fn": [ctypes.c_double, ctypes.c_int],
            "set_base_alloc_fn": [ctypes.c_void_p, ctypes.c_void_p],
            "set_record_stream_fn": [ctypes.c_void_p, ctypes.c_void_p],
            "set_begin_allocate_to_pool": [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p],
            "set_end_allocate_to_pool_fn": [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64],
            "set_release_pool": [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64],
        }
        if name not in signatures:
            raise AttributeError(name)
        result = ctypes.c_void_p if name == "set_base_alloc_fn" else None
        make = ctypes.CFUNCTYPE(result, *signatures[name])
        return lambda address: self.hooks.__setitem__(name, make(address))

    def malloc(self, size, device=0, stream=None):
        address = self.alloc(size, device, stream)
        with self.lock:
            self.given[address] = (size, device, stream)
        return address

    def raw_delete(self, address):
        with self.lock:
            size, device, stream = self.given.pop(address)
        self.free(address, size, device, stream)


class Torch(types.ModuleType):
    """Stands for the module `torch`, and is imported under that name."""

    def __init__(self):
        super().__init__("torch")
        self.__file__ = os.path.join(tempfile.mkdtemp(), "torch", "__init__.py")
        self.__version__ = "2.11.0+test"
        self.version = types.SimpleNamespace(cuda="13.0")
        self.current = None
        self.started = False
        memory = types.SimpleNamespace(
            CUDAPluggableAllocator=Pluggable, change_current_allocator=self.change, memory_stats=None,
            memory_summary=lambda device, abbreviated: f"Allocated memory {memory.memory_stats(device)['allocation.all.current']}",
        )
        index = types.SimpleNamespace(_get_device_index=lambda device, optional: 0 if device is None else device)
        self.cuda = types.SimpleNamespace(memory=memory, _utils=index, is_initialized=lambda: self.started)
        sys.modules["torch"] = self

    def change(self, allocator):
        if self.started:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.current = allocator

    def init(self):
        self.started = True
        self.current.hooks["set_init_fn"](DEVICES)


def enabled(settings=""):
    torch = Torch()
    import torch_allocator

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch_allocator.enable(settings)
    # The stand-in has no libraries, which is said.
    assert "libc10_cuda" in str(said[0].message), said
    torch.init()
    return torch, torch.current, torch_allocator


def closed(torch_allocator):
    """Everything was given back, and nothing was wrong."""
    assert torch_allocator.last_error() == "", torch_allocator.last_error()
    torch_allocator.empty_cache()
    for device in range(DEVICES):
        assert torch_allocator.memory_reserved(device) == 0
    assert torch_allocator.library.torch_allocator_is_valid() == 1


@scenario
def missing_torch_is_said():
    assert "torch" not in sys.modules
    sys.modules["torch"] = None
    import torch_allocator

    for function in [torch_allocator.enable, torch_allocator.pool, torch_allocator.memory_stats]:
        try:
            function()
        except ImportError as error:
            assert "allocator for PyTorch" in str(error), error
        else:
            raise AssertionError(function)
    assert not torch_allocator.is_enabled()


@scenario
def missing_library_is_said():
    os.environ["TORCH_ALLOCATOR_LIBRARY"] = "/no/such/library.so"
    try:
        import torch_allocator
    except ImportError as error:
        assert "/no/such/library.so" in str(error), error
    else:
        raise AssertionError(torch_allocator)


@scenario
def torch_without_cuda_is_said():
    torch = Torch()
    torch.version.cuda = None
    import torch_allocator

    try:
        torch_allocator.enable()
    except torch_allocator.AllocatorError as error:
        assert "built without CUDA" in str(error)
    else:
        raise AssertionError("it was enabled")


@scenario
def enabling_is_once_and_early():
    torch = Torch()
    import torch_allocator

    warnings.simplefilter("ignore")
    for wrong in ["no_such_option:1", "backend:cudaMalloc", ":::", "max_split_size_mb:-1"]:
        try:
            torch_allocator.enable(wrong)
        except torch_allocator.AllocatorError as error:
            assert str(error)
        else:
            raise AssertionError(wrong)
    assert not torch_allocator.is_enabled() and torch.current is None
    torch.started = True
    with contextlib.suppress(RuntimeError):
        torch_allocator.enable()
        raise AssertionError("too late")
    torch.started = False
    torch_allocator.enable()
    try:
        torch_allocator.enable()
    except torch_allocator.AllocatorError:
        pass
    else:
        raise AssertionError("twice")
    assert torch_allocator.is_enabled()


@scenario
def every_hook_is_set_and_answers():
    torch, allocator, ours = enabled()
    assert set(allocator.hooks) == set(ours._HOOKS), allocator.hooks
    stream, other = Driver().stream(), Driver().stream()
    address = allocator.malloc(3 * MIB, 0, stream)
    size = ctypes.c_size_t()
    base = allocator.hooks["set_base_alloc_fn"](address, ctypes.addressof(size))
    assert (base, size.value) == (address, 20 * MIB)
    allocator.hooks["set_record_stream_fn"](address, other)
    allocator.hooks["set_memory_fraction_fn"](0.5, 0)
    assert abs(ours.get_per_process_memory_fraction() - 0.5) < 1e-6
    allocator.hooks["set_memory_fraction_fn"](1.0, 0)
    allocator.raw_delete(address)
    allocator.hooks["set_reset_fn"]()
    closed(ours)


@scenario
def figures_have_torchs_names():
    torch, allocator, ours = enabled()
    address = allocator.malloc(3 * MIB)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 3 * MIB == ours.memory_allocated()
    assert stats["reserved_bytes.large_pool.peak"] == 20 * MIB == ours.max_memory_reserved()
    assert stats["num_ooms"] == 0 and stats["segment.all.current"] == 1
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocation"]["all"] == {"current": 1, "peak": 1, "allocated": 1, "freed": 0}
    assert ours.memory_summary() == "Allocated memory 1" and torch.cuda.memory.memory_stats is ours.memory_stats
    (segment,) = torch.cuda.memory_snapshot()
    assert segment["device"] == 0 and segment["segment_type"] == "large" and segment["total_size"] == 20 * MIB
    assert segment["segment_pool_id"] == (0, 0) and segment["is_expandable"] is False
    assert [block["state"] for block in segment["blocks"]] == ["active_allocated", "inactive"]
    assert torch.cuda.memory_snapshot(mempool_id=(0, 1)) == []
    with tempfile.NamedTemporaryFile() as file:
        ours.snapshot(file.name)
        # The file is another one under that name.
        with open(file.name, "rb") as written:
            assert pickle.load(written)["segments"] == [segment]
    allocator.raw_delete(address)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    assert (ours.max_memory_allocated(), torch.cuda.memory_stats()["allocation.all.allocated"]) == (0, 0)
    for wrong in [7, -1]:
        try:
            torch.cuda.memory_stats(wrong)
        except ours.AllocatorError:
            ours.forget_error()
        else:
            raise AssertionError(wrong)
    closed(ours)


@scenario
def the_history_has_torchs_form():
    torch, allocator, ours = enabled()
    memory = torch.cuda.memory
    before = allocator.malloc(MIB)
    assert memory._snapshot()["device_traces"] == [[], []], "nothing is recorded yet"
    memory._record_memory_history()
    memory._set_memory_metadata('a "word"\n\u00e9')
    assert memory._get_memory_metadata() == ours.memory._get_memory_metadata() == 'a "word"\n\u00e9'
    began = time.time() * 1e6
    address = allocator.malloc(3 * MIB, 1)
    memory._set_memory_metadata("")
    allocator.raw_delete(address)
    address = allocator.malloc(5 * MIB, 1)
    assert allocator.alloc(1 << 50, 1, None) is None
    ours.forget_error()
    taken = memory._snapshot()
    assert set(taken) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert taken["allocator_settings"]["max_split_size"] == -1, taken["allocator_settings"]
    assert taken["allocator_settings"]["roundup_power2_divisions"]["64"] == 0
    none, entries = taken["device_traces"]
    assert none == []
    actions = [entry["action"] for entry in entries]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "alloc", "oom"], actions
    first = entries[1]
    assert (first["addr"], first["size"], first["stream"], first["pool_id"]) == (entries[2]["addr"], 3 * MIB, 0, (0, 0))
    assert first["user_metadata"] == 'a "word"\n\u00e9' and entries[2]["user_metadata"] == ""
    assert first["compile_context"] == "N/A" and began <= first["time_us"] <= entries[-1]["time_us"] <= time.time() * 1e6
    assert "addr" not in entries[5] and entries[5]["device_free"] > 0 and entries[5]["size"] == 1 << 50
    for entry in entries[:2]:
        assert entry["frames"] and set(entry["frames"][0]) == {"name", "filename", "line"}, entry
    old, new = taken["segments"]
    assert [block["frames"] != [] for block in new["blocks"]] == [True, False], new
    assert new["frames"] and old["frames"] == [], "it was made before"
    # The next one tells of the first.
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "dump.pickle")
        memory._dump_snapshot(name)
        assert os.listdir(folder) == ["dump.pickle"]
        with open(name, "rb") as file:
            dumped = pickle.load(file)
        assert dumped["segments"] == taken["segments"]
        assert [entry["action"] for entry in dumped["device_traces"][1]] == [*actions, "snapshot"]
        assert dumped["device_traces"][1][-1]["size"] == 5 * MIB
        with contextlib.suppress(OSError):
            memory._dump_snapshot(os.path.join(folder, "none", "dump.pickle"))
            raise AssertionError("there is no such folder")
    memory._record_memory_history(None)
    assert memory._snapshot()["device_traces"] == [[], []]
    allocator.raw_delete(address)
    allocator.raw_delete(before)
    closed(ours)


@scenario
def the_history_takes_torchs_words():
    torch, allocator, ours = enabled()
    memory = torch.cuda.memory

    def entries():
        return memory._snapshot()["device_traces"][0]

    def pair():
        allocator.raw_delete(allocator.malloc(MIB))

    memory._record_memory_history(max_entries=3, context=None, skip_actions=["free_completed", "snapshot"])
    for _ in range(3):
        pair()
    assert [entry["action"] for entry in entries()] == ["free_requested", "alloc", "free_requested"]
    assert all(entry["frames"] == [] for entry in entries())
    memory._record_memory_history("all", "alloc", "python", clear_history=True)
    pair()
    assert [entry["action"] for entry in entries()] == ["alloc", "free_requested", "free_completed"]
    memory._record_memory_history("state", clear_history=True)
    pair()
    assert len(entries()) == 1
    # Torch's older form.
    memory._record_memory_history(True, trace_alloc_max_entries=2, clear_history=True)
    pair()
    assert [entry["action"] for entry in entries()] == ["free_requested", "free_completed"]
    memory._record_memory_history(False)
    assert entries() == []
    wrongs = [
        {"enabled": "some"}, {"context": "some"}, {"stacks": "some"}, {"stacks": None}, {"skip_actions": ["some"]},
        {"compile_context": True}, {"global_record_annotations": True}, {"max_entries": -1},
    ]
    for wrong in wrongs:
        try:
            memory._record_memory_history(**wrong)
        except (ours.AllocatorError, ValueError) as error:
            assert str(error), wrong
        else:
            raise AssertionError(wrong)
        assert entries() == [], wrong
    ours.forget_error()
    closed(ours)


@scenario
def long_snapshots_come_whole_to_each_thread():
    _, allocator, ours = enabled()
    given = [allocator.malloc(512 * (1 + turn)) for turn in range(3000)]
    library, lengths = ours.library, []
    length = library.torch_allocator_take_snapshot(0, 0, 0, 1)
    assert length > 1 << 16
    short, whole = ctypes.create_string_buffer(10), ctypes.create_string_buffer(length + 1)
    assert library.torch_allocator_give_snapshot(short, 10) == length, "it is kept"
    other = threading.Thread(target=lambda: lengths.append(library.torch_allocator_give_snapshot(None, 0)))
    other.start()
    other.join()
    assert lengths == [0], "it is this thread's"
    assert library.torch_allocator_give_snapshot(whole, length + 1) == length
    assert len(whole.value) == length and whole.value.startswith(short.value)
    assert library.torch_allocator_give_snapshot(None, 0) == 0, "it was given"
    for address in given:
        allocator.raw_delete(address)
    closed(ours)


@scenario
def garbage_is_refused():
    _, allocator, ours = enabled()
    library = ours.library
    address = allocator.malloc(MIB)

    def refused(call):
        ours.forget_error()
        call()
        assert ours.last_error(), "nothing was said"
        ours.forget_error()

    for wrong in [0xdead0000, address + 1, address + 512, 1, (1 << 64) - 1]:
        refused(lambda: library.torch_allocator_free(wrong, MIB, 0, None))
        refused(lambda: library.torch_allocator_record_stream(wrong, None))
    for device in [-1, DEVICES, (1 << 31) - 1, -(1 << 31)]:
        refused(lambda: library.torch_allocator_alloc(MIB, device, None))
        refused(lambda: library.torch_allocator_memory_fraction(0.5, device))
        refused(lambda: library.torch_allocator_begin_allocate_to_pool(device, 1, 0, None))
        refused(lambda: library.torch_allocator_end_allocate_to_pool(device, 1, 0))
        refused(lambda: library.torch_allocator_release_pool(device, 1, 0))
        refused(lambda: library.torch_allocator_reset_peak_stats(device))
    for fraction in [-1.0, 1.5, float("nan"), float("inf")]:
        refused(lambda: library.torch_allocator_memory_fraction(fraction, 0))
    for size in [1 << 50, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]:
        refused(lambda: library.torch_allocator_alloc(size, 0, None))
    refused(lambda: library.torch_allocator_alloc(MIB, 0, 0x1001))
    refused(lambda: library.torch_allocator_set_settings(None))
    refused(lambda: library.torch_allocator_set_settings(b"\xff\xfe"))
    refused(lambda: library.torch_allocator_set_out_of_memory((ctypes.c_void_p * 8)()))
    assert library.torch_allocator_last_error(None, 0) == 0
    library.torch_allocator_free(None, 0, 0, None)
    allocator.raw_delete(address)
    refused(lambda: library.torch_allocator_free(address, MIB, 0, None))
    closed(ours)


@scenario
def threads_allocate_and_free_for_each_other():
    for_others, failed = [], []
    _, allocator, ours = enabled("backend:elastic")
    driver = Driver()
    streams = [driver.stream(device) for device in range(DEVICES) for _ in range(2)]

    def work(number):
        try:
            device = number % DEVICES
            driver.enter(device)
            stream, other = streams[2 * device], streams[2 * device + 1]
            for turn in range(300):
                address = allocator.malloc((turn % 40 + 1) * 100_000, device, stream)
                assert address, ours.last_error()
                if turn % 3 == 0:
                    allocator.hooks["set_record_stream_fn"](address, other)
                if turn % 50 == 0:
                    ours.memory_snapshot(), ours.memory_stats(device)
                for_others.append(address)
                allocator.raw_delete(for_others.pop(0))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for address in for_others:
        allocator.raw_delete(address)
    assert not failed, failed
    for device in range(DEVICES):
        driver.enter(device)
        driver.call("cuCtxSynchronize")
    closed(ours)


@scenario
def devices_are_apart():
    _, allocator, ours = enabled()
    driver = Driver()
    driver.enter(1)
    driver.enter(0)
    chosen = driver.current()
    given = [allocator.malloc((device + 1) * MIB, device) for device in range(DEVICES)]
    assert driver.current() == chosen, "the thread's device is another"
    for device in range(DEVICES):
        assert ours.memory_allocated(device) == (device + 1) * MIB
    assert [segment["device"] for segment in ours.memory_snapshot()] == list(range(DEVICES))
    for address in given:
        allocator.hooks["set_record_stream_fn"](address, driver.stream(1 if address == given[0] else 0))
    driver.enter(0)
    for address in given:
        allocator.raw_delete(address)
    closed(ours)
    assert driver.current() == chosen, "the thread's device is another"


class Filter(ctypes.Structure):
    """A `std::function<bool(cudaStream_t)>` as libstdc++ lays it out."""

    COPY = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(ctypes.c_size_t * 2), ctypes.POINTER(ctypes.c_size_t * 2), ctypes.c_int)
    CALL = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(ctypes.c_size_t * 2), ctypes.POINTER(ctypes.c_size_t))
    _fields_ = [("functor", ctypes.c_size_t * 2), ("manager", COPY), ("invoker", CALL)]
    alive = 0

    @classmethod
    def of(cls, stream):
        def manage(to, source, what):
            if what == 2:
                to[0][0] = source[0][0]
                cls.alive += 1
            elif what == 3:
                cls.alive -= 1
            return False

        return cls((stream, 0), cls.COPY(manage), cls.CALL(lambda functor, given: functor[0][0] == given[0]))


@scenario
def pools_take_the_streams_of_a_filter():
    _, allocator, ours = enabled()
    stream = Driver().stream()
    taken = Filter.of(stream)
    allocator.hooks["set_begin_allocate_to_pool"](0, 5, 9, ctypes.addressof(taken))
    assert ours.last_error() == "" and Filter.alive == 1
    inside, outside = allocator.malloc(30 * MIB, 0, stream), allocator.malloc(30 * MIB)
    allocator.hooks["set_end_allocate_to_pool_fn"](0, 5, 9)
    assert Filter.alive == 0
    (mine,) = ours.memory_snapshot(mempool_id=(5, 9))
    assert mine["address"] == inside
    for address in [inside, outside]:
        allocator.raw_delete(address)
    ours.empty_cache()
    assert len(ours.memory_snapshot()) == 1
    allocator.hooks["set_release_pool"](0, 5, 9)
    closed(ours)


@scenario
def a_child_is_refused_while_threads_work():
    _, allocator, ours = enabled()
    kept, over = allocator.malloc(MIB), threading.Event()

    def work():
        while not over.is_set():
            allocator.free(allocator.alloc(MIB, 0, None), MIB, 0, None)
            ours.library.torch_allocator_alloc(1 << 50, 0, None)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            # A call that waits for a thread that is not here ends the child by this.
            signal.alarm(20)
            refused = allocator.alloc(MIB, 0, None) is None
            said = ours.last_error()
            allocator.free(kept, MIB, 0, None)
            allocator.hooks["set_reset_fn"]()
            allocator.hooks["set_init_fn"](DEVICES)
            allocator.hooks["set_record_stream_fn"](kept, None)
            # A thread that is not here may have held the text's lock; then it stays as it was.
            os._exit(0 if refused and ("forked" in said or "out of memory" in said or said == "") else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    over.set()
    for thread in threads:
        thread.join()
    ours.forget_error()
    allocator.raw_delete(kept)
    closed(ours)


@scenario
def a_child_is_told_why():
    _, allocator, ours = enabled()
    allocator.malloc(MIB)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        told = allocator.alloc(MIB, 0, None) is None and "forked subprocess" in ours.last_error()
        # As PyTorch's, which has nothing to give back here.
        ours.empty_cache()
        assert ours.memory_allocated() == MIB
        ours.forget_error()
        allocator.hooks["set_init_fn"](DEVICES)
        told = told and "forked subprocess" in ours.last_error()
        # The child ends as interpreters do.
        sys.exit(0 if told else 1)
    assert os.waitpid(child, 0)[1] == 0


@scenario
def workers_of_a_pool_of_processes_are_refused():
    """What a data loader's worker does that touches the GPU: it is told by an exception, and its siblings go on."""
    _, allocator, ours = enabled()
    kept = allocator.malloc(MIB)
    ours.memory._record_memory_history()
    raised = []
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p)
    raises = kind(lambda function, file, line, text: raised.append(text.decode()))
    ours.library.torch_allocator_set_raise(ctypes.cast(raises, ctypes.c_void_p))

    def worker(number, answers):
        signal.alarm(20)
        refused = allocator.alloc(MIB, 0, None) is None
        texts = [ours.last_error(), *raised]
        for use in [ours.memory._snapshot, ours.memory._record_memory_history, lambda: ours.memory_snapshot()]:
            try:
                use()
            except ours.AllocatorError as error:
                texts.append(str(error))
            else:
                texts.append("nothing was said")
        allocator.free(kept, MIB, 0, None)
        answers.put((number, refused, texts))

    processes = multiprocessing.get_context("fork")
    answers = processes.SimpleQueue()
    workers = [processes.Process(target=worker, args=(number, answers)) for number in range(3)]
    for process in workers:
        process.start()
    told = [answers.get() for _ in workers]
    for process in workers:
        process.join()
        assert process.exitcode == 0, process.exitcode
    assert sorted(number for number, _, _ in told) == [0, 1, 2]
    for _, refused, texts in told:
        assert refused and len(texts) == 5, texts
        assert all(text.startswith("Cannot re-initialize CUDA in forked subprocess") for text in texts), texts
    # The parent is as it was.
    assert raised == [] and ours.memory_allocated() == MIB
    ours.library.torch_allocator_set_raise(None)
    ours.memory._record_memory_history(None)
    allocator.raw_delete(kept)
    closed(ours)


@scenario
def a_fork_before_the_first_use_is_free():
    _, allocator, ours = enabled_before_start()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        address = allocator.malloc(MIB)
        sys.exit(0 if address and ours.last_error() == "" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert allocator.malloc(MIB)


def enabled_before_start():
    torch = Torch()
    import torch_allocator

    warnings.simplefilter("ignore")
    torch_allocator.enable()
    torch.started = True
    return torch, torch.current, torch_allocator


@scenario
def the_end_with_memory_handed_out():
    _, allocator, ours = enabled()
    kept = [allocator.malloc(MIB) for _ in range(10)]
    # Runs before the package's own function for the end, and after it.
    atexit.register(lambda: allocator.raw_delete(kept[0]))

    class Late:
        def __del__(self, free=allocator.free, address=kept[1]):
            free(address, MIB, 0, None)

    sys.modules["late"] = Late()


@scenario
def the_end_while_threads_work():
    _, allocator, _ = enabled()

    def work():
        while True:
            allocator.free(allocator.alloc(MIB, 0, None), MIB, 0, None)

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)


@scenario
def null_is_answered_without_pytorchs_functions():
    _, allocator, ours = enabled()
    assert allocator.alloc(1 << 50, 0, None) is None
    assert ours.last_error().startswith("CUDA out of memory. Tried to allocate 1048576.00 GiB. GPU 0 has")
    assert ours.memory_stats()["num_ooms"] == 1
    raised = []
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p)

    @kind
    def raises(function, file, line, text):
        raised.append(text.decode())

    ours.library.torch_allocator_set_raise(ctypes.cast(raises, ctypes.c_void_p))
    assert allocator.alloc(1 << 50, 0, None) is None
    assert raised == [ours.last_error()]
    ours.library.torch_allocator_set_raise(None)
    ours.forget_error()
    closed(ours)


def main():
    if len(sys.argv) == 1:
        print(*SCENARIOS, sep="\n")
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    SCENARIOS[sys.argv[1]]()


main()
