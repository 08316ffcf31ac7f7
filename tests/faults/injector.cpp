// Makes one allocation of the native module fail. Preloaded into a Python process, where it takes the place of
// `operator new`, and imported there, where it takes the place of CPython's allocators. It counts what the module's own
// C++ asks for, in this thread and without Python code in between; what jax, NumPy or Python code ask for never fails.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

extern "C" PyObject* _PyEval_EvalFrameDefault(PyThreadState*, struct _PyInterpreterFrame*, int);
using EvalFrame = PyObject* (*)(PyThreadState*, struct _PyInterpreterFrame*, int);
extern "C" void _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState*, EvalFrame);

namespace {

// ---- Whose code an address is.

enum class Owner : unsigned char { kForeign, kTransparent, kWatched };

struct Range {
  std::uintptr_t begin, end;
  Owner owner;
};

constexpr std::size_t kMaxRanges = 4096;
Range ranges[kMaxRanges];
std::size_t num_ranges = 0;
char watched_name[4096];

// Allocations that the module asks for pass through the runtimes of C, C++ and Python.
bool is_runtime(const char* name) {
  if (name[0] == '\0') return true;  // the program itself
  for (const char* part : {"/libpython", "/libc.so", "/libstdc++", "/libgcc_s", "/ld-linux", "/libasan", "/libubsan",
                           "/lib-dynload/", "/libm.so", "injector", "/libpthread"}) {
    if (std::strstr(name, part) != nullptr) return true;
  }
  return false;
}

int add_ranges(struct dl_phdr_info* info, std::size_t, void*) {
  Owner owner = is_runtime(info->dlpi_name) ? Owner::kTransparent : Owner::kForeign;
  if (watched_name[0] != '\0' && std::strcmp(info->dlpi_name, watched_name) == 0) owner = Owner::kWatched;
  if (owner == Owner::kForeign) return 0;
  for (int i = 0; i < info->dlpi_phnum && num_ranges < kMaxRanges; ++i) {
    const ElfW(Phdr) & part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    ranges[num_ranges++] = Range{begin, begin + part.p_memsz, owner};
  }
  return 0;
}

Owner owner_of(std::uintptr_t address) {
  for (std::size_t i = 0; i < num_ranges; ++i) {
    if (address >= ranges[i].begin && address < ranges[i].end) return ranges[i].owner;
  }
  return Owner::kForeign;
}

// ---- The stack: from an allocation outwards to the module, or to the innermost Python code.

thread_local std::uintptr_t innermost_eval = UINTPTR_MAX;

PyObject* eval_frame(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throwing) {
  const std::uintptr_t outer = innermost_eval;
  innermost_eval = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  PyObject* result = _PyEval_EvalFrameDefault(thread, frame, throwing);
  innermost_eval = outer;
  return result;
}

constexpr int kShownFrames = 6;

struct Site {
  std::uintptr_t frames[kShownFrames];  // of the module, innermost first
  int count;
};

struct Search {
  Site* site;
  bool watched;
};

_Unwind_Reason_Code visit_frame(struct _Unwind_Context* context, void* data) {
  auto* search = static_cast<Search*>(data);
  if (_Unwind_GetCFA(context) >= innermost_eval) return _URC_END_OF_STACK;
  const std::uintptr_t address = _Unwind_GetIP(context) - 1;
  const Owner owner = owner_of(address);
  if (owner == Owner::kWatched) {
    search->watched = true;
    search->site->frames[search->site->count++] = address;
    return search->site->count == kShownFrames ? _URC_END_OF_STACK : _URC_NO_REASON;
  }
  if (owner == Owner::kForeign) return _URC_END_OF_STACK;
  return _URC_NO_REASON;
}

// ---- Counting and failing.

struct Block {
  void* pointer;
  Site site;
  long number;
};

constexpr std::size_t kMaxBlocks = 1 << 18;
Block* blocks = nullptr;  // open addressing; a pointer of 1 marks a place that was in use
std::size_t num_blocks = 0;
void* const kGone = reinterpret_cast<void*>(1);

thread_local bool armed = false;
thread_local bool inside = false;
long counted = 0;
long failed = 0;
long fail_at = -1;
bool from_there_on = false;
Site failed_site;

std::size_t place_of(void* pointer) {
  return (reinterpret_cast<std::uintptr_t>(pointer) >> 4) * 0x9E3779B97F4A7C15ull >> 46;
}

struct Lock {
  Lock() {
    while (__atomic_test_and_set(&flag, __ATOMIC_ACQUIRE)) {
    }
  }
  ~Lock() { __atomic_clear(&flag, __ATOMIC_RELEASE); }
  static bool flag;
};
bool Lock::flag = false;

void remember(void* pointer, const Site& site, long number) {
  if (pointer == nullptr || blocks == nullptr) return;
  const Lock lock;
  if (num_blocks >= kMaxBlocks / 2) return;
  std::size_t at = place_of(pointer);
  while (blocks[at].pointer != nullptr && blocks[at].pointer != kGone) at = (at + 1) % kMaxBlocks;
  blocks[at] = Block{pointer, site, number};
  ++num_blocks;
}

bool forget(void* pointer, Block* out = nullptr) {
  if (pointer == nullptr || __atomic_load_n(&num_blocks, __ATOMIC_RELAXED) == 0) return false;
  const Lock lock;
  for (std::size_t at = place_of(pointer); blocks[at].pointer != nullptr; at = (at + 1) % kMaxBlocks) {
    if (blocks[at].pointer != pointer) continue;
    if (out != nullptr) *out = blocks[at];
    blocks[at].pointer = kGone;
    --num_blocks;
    return true;
  }
  return false;
}

// What to do with one allocation: whether the module asks for it, and whether it is to fail.
struct Verdict {
  bool ours = false;
  bool fails = false;
  long number = 0;
  Site site;
};

Verdict judge() {
  Verdict verdict;
  if (!armed || inside) return verdict;
  inside = true;
  verdict.site.count = 0;
  Search search{&verdict.site, false};
  _Unwind_Backtrace(visit_frame, &search);
  inside = false;
  if (!search.watched) return verdict;
  verdict.ours = true;
  verdict.number = counted++;
  verdict.fails = fail_at >= 0 && (from_there_on ? verdict.number >= fail_at : verdict.number == fail_at);
  if (verdict.fails && failed++ == 0) failed_site = verdict.site;
  return verdict;
}

// One request; the allocators call each other for large blocks, which is one allocation all the same.
template <typename Allocate>
void* allocate(Allocate&& from) {
  const Verdict verdict = judge();
  if (verdict.fails) return nullptr;
  if (!verdict.ours) return from();
  const bool before = inside;
  inside = true;
  void* pointer = from();
  inside = before;
  remember(pointer, verdict.site, verdict.number);
  return pointer;
}

// ---- operator new.

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void* new_block(std::size_t size) {
  static const auto real = next<void* (*)(std::size_t)>("_Znwm");
  return allocate([&] { return real(size); });
}

void delete_block(void* pointer) {
  static const auto real = next<void (*)(void*)>("_ZdlPv");
  forget(pointer);
  real(pointer);
}

// ---- CPython's allocators.

PyMemAllocatorEx original[3];

void* py_malloc(void* context, std::size_t size) {
  const auto* to = static_cast<PyMemAllocatorEx*>(context);
  return allocate([&] { return to->malloc(to->ctx, size); });
}

void* py_calloc(void* context, std::size_t count, std::size_t size) {
  const auto* to = static_cast<PyMemAllocatorEx*>(context);
  return allocate([&] { return to->calloc(to->ctx, count, size); });
}

void* py_realloc(void* context, void* pointer, std::size_t size) {
  const auto* to = static_cast<PyMemAllocatorEx*>(context);
  const Verdict verdict = judge();
  if (verdict.fails) return nullptr;
  Block known;
  const bool was_ours = forget(pointer, &known);
  const bool before = inside;
  inside = inside || verdict.ours;
  void* moved = to->realloc(to->ctx, pointer, size);
  inside = before;
  if (moved == nullptr) {
    if (was_ours) remember(pointer, known.site, known.number);
  } else if (verdict.ours) {
    remember(moved, verdict.site, verdict.number);
  } else if (was_ours) {
    remember(moved, known.site, known.number);
  }
  return moved;
}

void py_free(void* context, void* pointer) {
  const auto* to = static_cast<PyMemAllocatorEx*>(context);
  forget(pointer);
  to->free(to->ctx, pointer);
}

// ---- What Python sees.

PyObject* site_list(const Site& site) {
  PyObject* list = PyList_New(0);
  for (int i = 0; i < site.count && list != nullptr; ++i) {
    PyObject* address = PyLong_FromUnsignedLongLong(site.frames[i]);
    if (address == nullptr || PyList_Append(list, address) < 0) Py_CLEAR(list);
    Py_XDECREF(address);
  }
  return list;
}

PyObject* watch(PyObject*, PyObject* path) {
  const char* name = PyUnicode_AsUTF8(path);
  if (name == nullptr || std::strlen(name) >= sizeof watched_name) return PyErr_Format(PyExc_ValueError, "bad path");
  std::strcpy(watched_name, name);
  num_ranges = 0;
  dl_iterate_phdr(add_ranges, nullptr);
  for (std::size_t i = 0; i < num_ranges; ++i) {
    if (ranges[i].owner == Owner::kWatched) return PyLong_FromUnsignedLongLong(ranges[i].begin);
  }
  return PyErr_Format(PyExc_ValueError, "%s is not loaded", name);
}

PyObject* start(PyObject*, PyObject* args) {
  long at = -1;
  int on = 0;
  if (!PyArg_ParseTuple(args, "lp", &at, &on)) return nullptr;
  fail_at = at;
  from_there_on = on != 0;
  counted = failed = 0;
  failed_site.count = 0;
  armed = true;
  Py_RETURN_NONE;
}

PyObject* stop(PyObject*, PyObject*) {
  armed = false;
  PyObject* site = site_list(failed_site);
  return site == nullptr ? nullptr : Py_BuildValue("(llN)", counted, failed, site);
}

PyObject* live(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; i < kMaxBlocks && list != nullptr; ++i) {
    if (blocks[i].pointer == nullptr || blocks[i].pointer == kGone) continue;
    PyObject* site = site_list(blocks[i].site);
    if (site == nullptr || PyList_Append(list, site) < 0) Py_CLEAR(list);
    Py_XDECREF(site);
  }
  return list;
}

PyMethodDef methods[] = {
    {"watch", watch, METH_O, "Whose allocations count: the shared object at a path. Gives its lowest code address."},
    {"start", start, METH_VARARGS,
     "start(n, on): from now on the n-th allocation fails; with `on` all later ones too."},
    {"stop", stop, METH_NOARGS, "(allocations counted, those that failed, where the first one failed)"},
    {"live", live, METH_NOARGS, "Where the blocks were allocated that were counted and are in use."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "injector", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

void* operator new(std::size_t size) {
  void* pointer = new_block(size);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return new_block(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return new_block(size); }
void operator delete(void* pointer) noexcept { delete_block(pointer); }
void operator delete[](void* pointer) noexcept { delete_block(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { delete_block(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { delete_block(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { delete_block(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { delete_block(pointer); }

extern "C" __attribute__((visibility("default"))) PyObject* PyInit_injector() {
  if (next<void*>("_Znwm") == nullptr) {
    PyErr_SetString(PyExc_ImportError, "preload this library");
    return nullptr;
  }
  blocks = static_cast<Block*>(std::calloc(kMaxBlocks, sizeof(Block)));
  const PyMemAllocatorDomain domains[] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
  for (int i = 0; i < 3; ++i) {
    PyMem_GetAllocator(domains[i], &original[i]);
    PyMemAllocatorEx hooked = {&original[i], py_malloc, py_calloc, py_realloc, py_free};
    PyMem_SetAllocator(domains[i], &hooked);
  }
  _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), eval_frame);
  return PyModule_Create(&definition);
}
