#include "callable_value.h"

#include <opcode.h>

#include <unordered_map>

#include "node_kind.h"

namespace partax {
namespace {

PyCodeObject* as_code(PyObject* code) noexcept { return reinterpret_cast<PyCodeObject*>(code); }
PyFunctionObject* as_function(PyObject* function) noexcept { return reinterpret_cast<PyFunctionObject*>(function); }

bool equal(PyObject* left, PyObject* right) {
  return left == right || checked_int(PyObject_RichCompareBool(left, right, Py_EQ)) == 1;
}

// `==` of code objects compares constants type by type, but takes no notice of files and qualified names.
bool is_same_code(PyObject* left, PyObject* right) {
  if (left == right) return true;
  const PyCodeObject *a = as_code(left), *b = as_code(right);
  if (!equal(a->co_filename, b->co_filename) || !equal(a->co_qualname, b->co_qualname) || !equal(left, right) ||
      !equal(a->co_localspluskinds, b->co_localspluskinds)) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a->co_consts); ++i) {
    PyObject *one = PyTuple_GET_ITEM(a->co_consts, i), *other = PyTuple_GET_ITEM(b->co_consts, i);
    if (PyCode_Check(one) && !is_same_code(one, other)) return false;
  }
  return true;
}

// The module that a globals dictionary is of, or else a function in it.
Ref anchor_of(PyObject* globals) {
  static PyObject* const name_key = Ref::checked(PyUnicode_InternFromString("__name__")).release();
  PyObject* name = PyDict_GetItemWithError(globals, name_key);
  PyObject* module = name == nullptr ? nullptr : PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (PyErr_Occurred() != nullptr) throw PythonError{};
  if (module != nullptr && PyModule_Check(module) && PyModule_GetDict(module) == globals) {
    return Ref::checked(PyWeakref_NewRef(module, nullptr));
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(globals, &position, &key, &value) != 0) {
    if (PyFunction_Check(value) && as_function(value)->func_globals == globals) {
      return Ref::checked(PyWeakref_NewRef(value, nullptr));
    }
  }
  return {};
}

bool lives(PyObject* weakref) noexcept { return static_cast<bool>(weak_target(weakref)); }

// A use of a free variable in the body of a class; that of a closure for code inside is judged by that code.
bool reads_cell_otherwise(int operation) noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  return operation == LOAD_FROM_DICT_OR_DEREF;
#else
  return operation == LOAD_CLASSDEREF;
#endif
}

// An instruction that loads a key of a container without running anything.
bool loads_key(int operation) noexcept {
#if PY_VERSION_HEX >= 0x030E0000
  if (operation == LOAD_FAST_BORROW || operation == LOAD_SMALL_INT) return true;
#endif
  return operation == LOAD_CONST || operation == LOAD_FAST;
}

// Methods by which code adds to a container without looking into it.
bool is_recording(PyObject* method) noexcept {
  for (const char* name : {"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "clear"}) {
    if (PyUnicode_CompareWithASCIIString(method, name) == 0) return true;
  }
  return false;
}

// How code uses a free variable.
struct CellUse {
  bool assigned = false;  // it, or code inside it, assigns the variable
  bool read = false;      // some use is more than adding to what it holds
};

// Whether `code`, or code inside it, has an instruction or a method's name that changes some container.
bool writes(PyCodeObject* code) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(code->co_names, i);
    if (is_recording(name)) return true;
    for (const char* removing : {"pop", "popleft", "popitem", "remove", "discard", "sort", "reverse"}) {
      if (PyUnicode_CompareWithASCIIString(name, removing) == 0) return true;
    }
  }
  const Ref bytes = Ref::checked(PyCode_GetCode(code));
  const auto* instructions = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.get()));
  for (Py_ssize_t i = 0; i + 1 < PyBytes_GET_SIZE(bytes.get()); i += 2) {
    switch (instructions[i]) {
      case STORE_SUBSCR:
      case DELETE_SUBSCR:
      case STORE_ATTR:
      case DELETE_ATTR:
#if PY_VERSION_HEX >= 0x030C0000
      case STORE_SLICE:
#endif
        return true;
      default:
        break;
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* inner = PyTuple_GET_ITEM(code->co_consts, i);
    if (PyCode_Check(inner) && writes(as_code(inner))) return true;
  }
  return false;
}

// The use of each free variable of `code`, in the order of its free variables.
std::vector<CellUse> cell_uses(PyCodeObject* code) {
  const int first_free = code->co_nlocalsplus - code->co_nfreevars;
  std::vector<CellUse> uses(static_cast<std::size_t>(code->co_nfreevars));
  if (uses.empty()) return uses;
  const Ref bytes = Ref::checked(PyCode_GetCode(code));
  const auto* instructions = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.get()));
  const Py_ssize_t size = PyBytes_GET_SIZE(bytes.get());
  int argument = 0;
  CellUse* loaded = nullptr;  // what the instruction before has loaded
  for (Py_ssize_t i = 0; i + 1 < size; i += 2) {
    argument |= instructions[i + 1];
    const int operation = instructions[i];
    if (operation == EXTENDED_ARG) {
      argument <<= 8;
      continue;
    }
    if (loaded != nullptr) {
#if PY_VERSION_HEX >= 0x030C0000
      const bool is_attribute = operation == LOAD_ATTR;
      const int name = argument >> 1;
#else
      const bool is_attribute = operation == LOAD_ATTR || operation == LOAD_METHOD;
      const int name = argument;
#endif
      const bool is_method = is_attribute && is_recording(PyTuple_GET_ITEM(code->co_names, name));
      const bool is_stored = loads_key(operation) && i + 3 < size && instructions[i + 2] == STORE_SUBSCR;
      if (!is_method && !is_stored) loaded->read = true;
      loaded = nullptr;
    }
    const bool is_free = argument >= first_free && argument < code->co_nlocalsplus;
    if (is_free && (operation == STORE_DEREF || operation == DELETE_DEREF)) {
      uses[static_cast<std::size_t>(argument - first_free)].assigned = true;
    } else if (is_free && operation == LOAD_DEREF) {
      loaded = &uses[static_cast<std::size_t>(argument - first_free)];
    } else if (is_free && reads_cell_otherwise(operation)) {
      uses[static_cast<std::size_t>(argument - first_free)].read = true;
    }
    argument = 0;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* inner = PyTuple_GET_ITEM(code->co_consts, i);
    if (!PyCode_Check(inner)) continue;
    const PyCodeObject* inside = as_code(inner);
    const std::vector<CellUse> inner_uses = cell_uses(as_code(inner));
    for (std::size_t k = 0; k < inner_uses.size(); ++k) {
      const int at = inside->co_nlocalsplus - inside->co_nfreevars + static_cast<int>(k);
      PyObject* name = PyTuple_GET_ITEM(inside->co_localsplusnames, at);
      for (int j = first_free; j < code->co_nlocalsplus; ++j) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, j), name) != 0) continue;
        CellUse& use = uses[static_cast<std::size_t>(j - first_free)];
        use.assigned = use.assigned || inner_uses[k].assigned;
        use.read = use.read || inner_uses[k].read;
      }
    }
  }
  return uses;
}

// Callables that were marked, by address and weakly.
class Marked {
 public:
  // How often it has been added by now.
  std::size_t add(PyObject* callable) {
    if (has(callable)) return ++known_.find(callable)->second.times;
    if (known_.size() >= 1024) {
      for (auto it = known_.begin(); it != known_.end();)
        it = lives(it->second.weak.get()) ? std::next(it) : known_.erase(it);
    }
    Ref weak = Ref::checked(PyWeakref_NewRef(callable, nullptr));
    known_[callable] = Mark{std::move(weak), 1};
    return 1;
  }
  void remove(PyObject* callable) noexcept {
    if (!known_.empty()) known_.erase(callable);
  }
  bool has(PyObject* callable) const noexcept {
    if (known_.empty()) return false;
    const auto found = known_.find(callable);
    return found != known_.end() && weakly_is(found->second.weak.get(), callable);
  }

 private:
  struct Mark {
    Ref weak;
    std::size_t times = 0;
  };
  std::unordered_map<PyObject*, Mark> known_;
};

Marked& unsteady() {
  static auto* const marked = new Marked();  // never destroyed: the interpreter may be gone by then
  return *marked;
}

Marked& noting() {
  static auto* const marked = new Marked();
  return *marked;
}

// Functions that others seem to have changed while they were traced, and how often in a row. So many traces that nobody
// left alone were changed by themselves.
constexpr std::size_t kSure = 64;

Marked& suspected() {
  static auto* const marked = new Marked();
  return *marked;
}

PyObject* names_of_parts[3] = {};  // of functools.partial

}  // namespace

CallableSort callable_sort(PyObject* value) noexcept {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFunction_Type) return CallableSort::kFunction;
  const Hooks& known = hooks();
  if (reinterpret_cast<PyObject*>(type) == known.jitted_type.get()) return CallableSort::kJitted;
  if (reinterpret_cast<PyObject*>(type) == known.wrapper_type.get()) return CallableSort::kWrapper;
  auto* partial = reinterpret_cast<PyTypeObject*>(known.partial_type.get());
  if (partial != nullptr && PyType_IsSubtype(type, partial) && type->tp_hash == partial->tp_hash &&
      type->tp_richcompare == partial->tp_richcompare) {
    return CallableSort::kPartial;
  }
  return CallableSort::kNone;
}

void intern_partial_names() {
  const char* const names[] = {"func", "args", "keywords"};
  for (std::size_t i = 0; i < 3; ++i) names_of_parts[i] = Ref::checked(PyUnicode_InternFromString(names[i])).release();
}

PyObject* const* partial_names() noexcept { return names_of_parts; }

CallableParts::CallableParts(PyObject* callable, CallableSort sort) {
  switch (sort) {
    case CallableSort::kFunction:
      function(callable);
      break;
    case CallableSort::kPartial:
      partial(callable);
      break;
    case CallableSort::kJitted:
      jitted(callable);
      break;
    default:
      wrapper(callable);
  }
}

void CallableParts::function(PyObject* callable) {
  const PyFunctionObject* object = as_function(callable);
  all_state(callable, [&](std::size_t, PyObject* part) {
    parts_.push_back(Ref::borrow(part));
    return true;
  });
  num_state_ = parts_.size();
  num_cells_ = num_state_ - 3;
  for (PyObject* part : {object->func_name, object->func_qualname, object->func_module}) {
    parts_.push_back(Ref::borrow(part));
  }
  // A dictionary of annotations is made when it is first asked for, if need be an empty one.
  Ref annotations = Ref::borrow(object->func_annotations == nullptr ? nullptr : PyFunction_GetAnnotations(callable));
  if (annotations && PyDict_GET_SIZE(annotations.get()) == 0) annotations.reset();
#if PY_VERSION_HEX >= 0x030E0000
  annotate(Ref::borrow(object->func_annotate), object->func_globals, annotations);
#endif
  parts_.push_back(std::move(annotations));
}

#if PY_VERSION_HEX >= 0x030E0000
// Annotations are evaluated when they are asked for, by a function which is made anew as often as the one it is of:
// what it consists of is a part, and the dictionary only where it has been changed since.
void CallableParts::annotate(const Ref& annotate, PyObject* globals, Ref& annotations) {
  if (!annotate || !PyFunction_Check(annotate.get()) || as_function(annotate.get())->func_globals != globals ||
      as_function(annotate.get())->func_defaults != nullptr ||
      as_function(annotate.get())->func_kwdefaults != nullptr) {
    parts_.push_back(annotate);
    return;
  }
  const PyFunctionObject* object = as_function(annotate.get());
  const PyCodeObject* code = as_code(object->func_code);
  parts_.push_back(Ref::borrow(object->func_code));
  for (int i = 0; i < code->co_nfreevars; ++i) {
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - code->co_nfreevars + i);
    // The names of a class that is made anew need not mean the same.
    if (PyUnicode_CompareWithASCIIString(name, "__classdict__") == 0) {
      known_ = false;
      parts_.emplace_back();
      continue;
    }
    parts_.push_back(Ref::borrow(PyCell_GET(PyTuple_GET_ITEM(object->func_closure, i))));
  }
  if (!annotations) return;
  static PyObject* const value_format = PyLong_FromLong(1);
  const Ref fresh = Ref::steal(PyObject_CallOneArg(annotate.get(), value_format));
  const int same = fresh ? PyObject_RichCompareBool(fresh.get(), annotations.get(), Py_EQ) : -1;
  if (same < 0) PyErr_Clear();
  if (same == 1) annotations.reset();
}
#endif

void CallableParts::partial(PyObject* callable) {
  known_ = all_partial_state(callable, [&](std::size_t, PyObject* part) {
    parts_.push_back(Ref::borrow(part));
    return true;
  });
  num_state_ = parts_.size();
}

void CallableParts::jitted(PyObject* callable) {
  const Ref read = Ref::checked(PyObject_CallOneArg(hooks().jitted_parts.get(), callable));
  known_ = PyTuple_Check(read.get());
  for (Py_ssize_t i = 0; known_ && i < PyTuple_GET_SIZE(read.get()); ++i) {
    parts_.push_back(Ref::borrow(PyTuple_GET_ITEM(read.get(), i)));
  }
  num_state_ = known_ ? 1 : 0;
}

void CallableParts::wrapper(PyObject* callable) {
  parts_ = {wrapped_callable(callable), attribute(callable, "__self__"), attribute(callable, "_options")};
  num_state_ = parts_.size();
}

Ref wrapped_callable(PyObject* wrapper) {
  static PyObject* const name = Ref::checked(PyUnicode_InternFromString("_function")).release();
  return Ref::checked(PyObject_GetAttr(wrapper, name));
}

bool has_empty_cell(PyObject* function) noexcept {
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); ++i) {
    if (PyCell_GET(PyTuple_GET_ITEM(closure, i)) == nullptr) return true;
  }
  return false;
}

FunctionIdentity FunctionIdentity::of(PyObject* function) {
  const PyFunctionObject* object = as_function(function);
  FunctionIdentity identity;
  identity.code = Ref::borrow(object->func_code);
  identity.globals = object->func_globals;
  if (object->func_builtins == PyEval_GetBuiltins()) identity.anchor = anchor_of(object->func_globals);
  return identity;
}

bool FunctionIdentity::has_code_of(PyObject* function) const {
  return is_same_code(code.get(), as_function(function)->func_code);
}

bool FunctionIdentity::has_globals_of(PyObject* function) const noexcept {
  return anchor && lives(anchor.get()) && as_function(function)->func_globals == globals &&
         as_function(function)->func_builtins == PyEval_GetBuiltins();
}

std::vector<bool> own_records(PyObject* function) {
  const PyFunctionObject* object = as_function(function);
  std::vector<bool> records;
  const std::vector<CellUse> uses = cell_uses(as_code(object->func_code));
  for (std::size_t i = 0; i < uses.size(); ++i) {
    PyObject* contents = PyCell_GET(PyTuple_GET_ITEM(object->func_closure, static_cast<Py_ssize_t>(i)));
    const bool is_container = contents != nullptr && (PyList_Check(contents) || PySet_Check(contents) ||
                                                      PyDict_Check(contents) || PyByteArray_Check(contents));
    records.push_back(uses[i].assigned || (is_container && !uses[i].read));
  }
  return records;
}

bool changed_by_others(PyObject* callable) {
  if (!PyFunction_Check(callable) || is_unsteady(callable)) return false;
  if (writes(as_code(as_function(callable)->func_code))) return false;
  return suspected().add(callable) < kSure;
}

void note_unchanged(PyObject* callable) noexcept { suspected().remove(callable); }

void mark_unsteady(PyObject* callable) { unsteady().add(callable); }
bool is_unsteady(PyObject* callable) noexcept { return unsteady().has(callable); }
void mark_noting(PyObject* callable) { noting().add(callable); }
bool is_noting(PyObject* callable) noexcept { return noting().has(callable); }

}  // namespace partax
