// Makes one allocation of the native module fail. It is preloaded into a Python process, where it replaces
// `operator new`, and imported there, where it replaces CPython's allocators. It counts what the module's own C++
// allocates, in this thread and without Python code in between; allocations of jax, NumPy or Python code never fail.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

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
const char* watched_name = nullptr;
std::uintptr_t watched_base = 0;

// Allocations of the module pass through the runtimes of C, C++ and Python.
bool is_runtime(const char* name) {
  if (name[0] == '\0') return true;  // the program itself
  for (const char* part : {"/libpython", "/libc.so", "/libstdc++", "/libgcc_s", "/ld-linux", "/libasan", "/libubsan",
                           "/lib-dynload/", "/libm.so", "injector", "/libpthread"}) {
    if (std::strstr(name, part) != nullptr) return true;
  }
  return false;
}

int add_ranges(struct dl_phdr_info* info, std::size_t, void*) {
  const bool is_watched = std::strcmp(info->dlpi_name, watched_name) == 0;
  if (is_watched) watched_base = info->dlpi_addr;
  if (!is_watched && !is_runtime(info->dlpi_name)) return 0;
  for (int i = 0; i < info->dlpi_phnum && num_ranges < kMaxRanges; ++i) {
    const ElfW(Phdr) & part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    ranges[num_ranges++] = Range{begin, begin + part.p_memsz, is_watched ? Owner::kWatched : Owner::kTransparent};
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

constexpr int kMaxFrames = 6;

struct Site {
  std::uintptr_t frames[kMaxFrames];  // of the module, innermost first, as addresses in its file
  int count = 0;
};

_Unwind_Reason_Code visit_frame(struct _Unwind_Context* context, void* data) {
  auto* site = static_cast<Site*>(data);
  if (_Unwind_GetCFA(context) >= innermost_eval) return _URC_END_OF_STACK;
  const std::uintptr_t address = _Unwind_GetIP(context) - 1;
  const Owner owner = owner_of(address);
  if (owner == Owner::kForeign) return _URC_END_OF_STACK;
  if (owner == Owner::kWatched) site->frames[site->count++] = address - watched_base;
  return site->count == kMaxFrames ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// ---- Counting and failing.

thread_local bool armed = false;
thread_local bool inside = false;  // of an allocation that is counted, or of this library
long counted = 0;
long failed = 0;
long fail_at = -1;
bool fails_from_there_on = false;
Site failed_site;

struct Inside {
  const bool before = inside;
  Inside() { inside = true; }
  ~Inside() { inside = before; }
};

std::mutex mutex;
std::unordered_map<void*, Site>* blocks = nullptr;  // those in use that the module allocated
std::atomic<std::size_t> num_blocks{0};

void remember(void* pointer, const Site& site) {
  if (pointer == nullptr) return;
  const Inside here;
  const std::lock_guard<std::mutex> lock(mutex);
  blocks->insert_or_assign(pointer, site);
  num_blocks = blocks->size();
}

// Returns the site of a block, whose count is 0 if the module did not allocate it.
Site forget(void* pointer) {
  Site site;
  if (num_blocks == 0 || inside) return site;
  const Inside here;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto place = blocks->find(pointer);
  if (place == blocks->end()) return site;
  site = place->second;
  blocks->erase(place);
  num_blocks = blocks->size();
  return site;
}

// The site of an allocation, whose count is 0 if the module does not ask for it. Sets whether it has to fail.
Site judge(bool& fails) {
  Site site;
  fails = false;
  if (!armed || inside) return site;
  {
    const Inside here;
    _Unwind_Backtrace(visit_frame, &site);
  }
  if (site.count == 0) return site;
  const long number = counted++;
  fails = fail_at >= 0 && (fails_from_there_on ? number >= fail_at : number == fail_at);
  if (fails && failed++ == 0) failed_site = site;
  return site;
}

// Makes one request. The allocators call each other for large blocks, which is still one allocation.
template <typename Allocate>
void* allocate(Allocate&& from) {
  bool fails;
  const Site site = judge(fails);
  if (fails) return nullptr;
  if (site.count == 0) return from();
  void* pointer;
  {
    const Inside here;
    pointer = from();
  }
  remember(pointer, site);
  return pointer;
}

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
  bool fails;
  const Site site = judge(fails);
  if (fails) return nullptr;
  const Site before = forget(pointer);
  void* moved;
  if (site.count > 0) {
    const Inside here;
    moved = to->realloc(to->ctx, pointer, size);
  } else {
    moved = to->realloc(to->ctx, pointer, size);
  }
  if (moved == nullptr && before.count > 0) remember(pointer, before);
  if (moved != nullptr && (site.count > 0 || before.count > 0)) remember(moved, site.count > 0 ? site : before);
  return moved;
}

void py_free(void* context, void* pointer) {
  const auto* to = static_cast<PyMemAllocatorEx*>(context);
  forget(pointer);
  to->free(to->ctx, pointer);
}

// ---- The Python module.

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
  watched_name = strdup(PyUnicode_AsUTF8(path));
  dl_iterate_phdr(add_ranges, nullptr);
  if (watched_base == 0) return PyErr_Format(PyExc_ValueError, "%s is not loaded", watched_name);
  Py_RETURN_NONE;
}

PyObject* start(PyObject*, PyObject* args) {
  int on = 0;
  if (!PyArg_ParseTuple(args, "lp", &fail_at, &on)) return nullptr;
  fails_from_there_on = on != 0;
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
  const Inside here;
  PyObject* list = PyList_New(0);
  for (const auto& [pointer, block] : *blocks) {
    PyObject* site = list == nullptr ? nullptr : site_list(block);
    if (site == nullptr || PyList_Append(list, site) < 0) Py_CLEAR(list);
    Py_XDECREF(site);
  }
  return list;
}

PyMethodDef methods[] = {
    {"watch", watch, METH_O, "watch(path): the allocations of this shared object count"},
    {"start", start, METH_VARARGS, "start(n, on): the n-th allocation from now on fails; if `on`, all later ones too"},
    {"stop", stop, METH_NOARGS, "(allocations counted, allocations failed, the site of the first failure)"},
    {"live", live, METH_NOARGS, "the sites at which the counted blocks that are in use were allocated"},
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
  blocks = new std::unordered_map<void*, Site>;
  const PyMemAllocatorDomain domains[] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
  for (int i = 0; i < 3; ++i) {
    PyMem_GetAllocator(domains[i], &original[i]);
    PyMemAllocatorEx hooked = {&original[i], py_malloc, py_calloc, py_realloc, py_free};
    PyMem_SetAllocator(domains[i], &hooked);
  }
  _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), eval_frame);
  return PyModule_Create(&definition);
}
