#include "readings.h"

#include <cstring>
#include <unordered_map>

#include "callable_parts.h"
#include "static_value.h"

namespace partax {
namespace {

// A program that reads more than this is not proven.
constexpr std::size_t kMaxItems = 20000;

enum Mark : std::uint8_t {
  kAbsent,
  kMet,
  kFunction,
  kPartial,
  kJitted,
  kWrapper,
  kMethod,
  kContainer,
  kDescriptor,
  kClass,
  kInstance,
  kGlobals,
};

// Entries of a class that its statement, and decorators of libraries, write about it.
bool is_about_class(PyObject* name) {
  for (const char* known : {"__dict__",
                            "__weakref__",
                            "__doc__",
                            "__module__",
                            "__qualname__",
                            "__annotations__",
                            "__annotate__",
                            "__annotate_func__",
                            "__annotations_cache__",
                            "__orig_bases__",
                            "__parameters__",
                            "__type_params__",
                            "__abstractmethods__",
                            "_abc_impl",
                            "__abstractvars__",
                            "__abstractclassvars__",
                            "__dataclass_fields__",
                            "__dataclass_params__",
                            "__match_args__",
                            "__slots__",
                            "__static_attributes__",
                            "__firstlineno__"}) {
    if (PyUnicode_CompareWithASCIIString(name, known) == 0) return true;
  }
  return false;
}

bool is_installed(PyObject* module_name) {
  return PyUnicode_Check(module_name) != 0 &&
         Ref::checked(PyObject_CallOneArg(hooks().is_installed.get(), module_name)).get() == Py_True;
}

// The value of a name in a dictionary; empty if there is none.
Ref look_up(PyObject* dict, PyObject* name) {
  Ref found = Ref::borrow(PyDict_GetItemWithError(dict, name));
  if (!found && PyErr_Occurred() != nullptr) throw PythonError{};
  return found;
}

Ref look_up(PyObject* dict, const char* name) {
  return look_up(dict, Ref::checked(PyUnicode_InternFromString(name)).get());
}

// Whether a dictionary of globals is that of a module which Python or a library defines.
bool is_of_installed_module(PyObject* globals) {
  const Ref name = look_up(globals, "__name__");
  const Ref module = name ? look_up(PyImport_GetModuleDict(), name.get()) : Ref();
  if (!module || !PyModule_Check(module.get()) || PyModule_GetDict(module.get()) != globals) return false;
  return is_installed(name.get());
}

bool is_plain_constant(PyObject* value) noexcept {
  PyTypeObject* type = Py_TYPE(value);
  return value == Py_None || type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyComplex_Type || value == Py_Ellipsis ||
         value == Py_NotImplemented;
}

// A method of a class that is written in C, or an attribute of one.
bool is_descriptor(PyTypeObject* type) noexcept {
  return type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type ||
         type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type ||
         std::strcmp(type->tp_name, "_collections._tuplegetter") == 0;
}

bool is_same_constant(PyObject* known, PyObject* now) {
  if (known == now) return true;
  if (Py_TYPE(known) != Py_TYPE(now)) return false;
  return StaticValue::loose(Ref::borrow(known)).sealed(nullptr).equals(now);
}

}  // namespace

// Walks what a callable reads: writes it down, or compares it with what was written down.
class ReadingWalk {
 public:
  ReadingWalk(Readings& record, bool bare) : record_(&record), known_(nullptr), bare_(bare) {}
  ReadingWalk(const Readings& known, std::string* difference)
      : known_(&known), difference_(difference), bare_(known.bare_) {}

  bool all(PyObject* callable) {
    try {
      const bool same = value(callable);
      return same && (known_ == nullptr || at_ == known_->items_.size());
    } catch (const PythonError&) {
      forgive();
    } catch (const WalkError& error) {
      if (error.must_pass()) throw;
    }
    return false;
  }

  std::string place() const {
    std::string text;
    for (auto segment = path_.rbegin(); segment != path_.rend(); ++segment) text += *segment;
    return first_.empty() ? text : text == first_ ? text : text + " through " + first_;
  }

 private:
  // ---- What is written down or compared. False ends the walk.

  bool item(Readings::Item::Kind kind, std::size_t number, PyObject* object) {
    if (known_ == nullptr) {
      if (record_->items_.size() >= kMaxItems) return false;
      Ref held =
          kind == Readings::Item::kObject ? Ref::checked(PyWeakref_NewRef(object, nullptr)) : Ref::borrow(object);
      record_->items_.push_back(Readings::Item{kind, number, std::move(held), Ref()});
      return true;
    }
    if (at_ >= known_->items_.size()) return false;
    const Readings::Item& known = known_->items_[at_++];
    if (known.kind != kind) return false;
    switch (kind) {
      case Readings::Item::kMark:
        return known.number == number;
      case Readings::Item::kConstant:
        return is_same_constant(known.object.get(), object);
      case Readings::Item::kObject:
        return weakly_is(known.object.get(), object);
      case Readings::Item::kCode:
        return is_same_code(known.object.get(), object);
    }
    return false;
  }

  bool mark(Mark what, std::size_t count = 0) { return item(Readings::Item::kMark, count * 16 + what, nullptr); }
  bool constant(PyObject* object) { return item(Readings::Item::kConstant, 0, object); }
  bool object(PyObject* object) { return item(Readings::Item::kObject, 0, object); }
  // A part of something: where it fails, its place is noted on the way up.
  template <typename Segment>
  bool part(PyObject* it, Segment&& segment) {
    const Ref keep = Ref::borrow(it);
    if (it == nullptr ? mark(kAbsent) : value(it)) return true;
    if (known_ == nullptr || difference_ != nullptr) note(segment());
    return false;
  }

  // Attributes and items belong to the variable before them; from one variable to the next it is "through".
  void note(const std::string& segment) {
    const bool is_below = segment[0] == '.' || segment[0] == '[';
    if (is_below && first_.empty()) {
      path_.push_back(segment);
    } else if (!is_below) {
      const std::size_t from = segment.find('\''), to = segment.rfind('\'');
      const bool named = from != std::string::npos && to > from;
      if (first_.empty()) path_.push_back(path_.empty() || !named ? segment : segment.substr(from + 1, to - from - 1));
      first_ = segment;
    }
  }

  // ---- Values by what they are.

  bool value(PyObject* it) {
    if (known_ != nullptr && at_ < known_->items_.size() && known_->items_[at_].kind == Readings::Item::kConstant) {
      return constant(it);  // else it is no constant now
    }
    if (is_plain_constant(it)) return constant(it);
    const DepthGuard guard;
    PyTypeObject* type = Py_TYPE(it);
    if (type == &PyTuple_Type) return container(it);
    if (type == &PyCFunction_Type) return builtin_function(it);
    if (is_descriptor(type)) return mark(kDescriptor, reinterpret_cast<std::uintptr_t>(it) >> 4);
    const auto [met, is_new] = met_.emplace(it, met_.size());
    if (!is_new) return mark(kMet, met->second);
    kept_.push_back(Ref::borrow(it));
    if (type == &PyFunction_Type) return function(it);
    if (PyMethod_Check(it)) {
      return mark(kMethod) && part(PyMethod_GET_FUNCTION(it), [] { return std::string(".__func__"); }) &&
             part(PyMethod_GET_SELF(it), [] { return std::string(".__self__"); });
    }
    if (PyType_Check(it)) return a_class(it);
    if (type == &PyDictProxy_Type) {
      const Ref dict = Ref::checked(PyDict_New());
      checked_int(PyDict_Update(dict.get(), it));
      return container(dict.get());
    }
    if (PyModule_Check(it)) return is_installed(attribute(it, "__name__").get()) && object(it);
    if (known_ == nullptr && is_of_library(it)) return immutable(it);
    if (const CallableSort sort = callable_sort(it); sort != CallableSort::kNone) return callable(it, sort);
    switch (form_of(it)) {
      case Form::kTuple:
      case Form::kList:
      case Form::kDict:
      case Form::kSubclass:
        return container(it);
      case Form::kSet:
      case Form::kFrozenSet:
        return set_of_constants(it);
      case Form::kByteArray:
        return mark(kContainer) && constant(Ref::checked(PyBytes_FromObject(it)).get());
      case Form::kNumpyScalar:
      case Form::kTreedef:
        return immutable(it);
      case Form::kArray:
        return array(it);
      default:
        break;
    }
    const TypeInfoPtr info = TypeTable::instance().shared(TypeTable::instance().find(it));
    if (info->is_enum) return object(it) && a_type(it);
    if (info->is_constant) return immutable(it);
    if (type == &PyProperty_Type || type == &PyStaticMethod_Type || type == &PyClassMethod_Type ||
        reinterpret_cast<PyObject*>(type) == hooks().cached_property.get()) {
      return accessor(it);
    }
    return info->is_in_reach && instance(it);
  }

  // Whether a library defines this very callable: it is found by its module and name.
  static bool is_of_library(PyObject* it) {
    return Py_TYPE(it)->tp_call != nullptr && TypeTable::instance().find(it).is_installed &&
           Ref::checked(PyObject_CallOneArg(hooks().is_of_library.get(), it)).get() == Py_True;
  }

  // Of these it makes no difference whether two are one object.
  bool immutable(PyObject* it) {
    met_.erase(it);
    return constant(it);
  }

  bool array(PyObject* it) {
    if (TypeTable::instance().find(it).sort != LeafSort::kJaxArray) return false;
    if (known_ == nullptr) record_->holds_arrays_ = true;
    return object(it);
  }

  // What C functions hold is out of reach, but for modules and classes that they are of.
  bool builtin_function(PyObject* it) {
    PyObject* self = PyCFunction_GET_SELF(it);
    if (self != nullptr && !PyModule_Check(self) && !PyType_Check(self)) return false;
    return !reads_outside(it) && constant(it);
  }

  static bool reads_outside(PyObject* it) {
    return Ref::checked(PyObject_CallOneArg(hooks().reads_outside.get(), it)).get() == Py_True;
  }

  bool container(PyObject* it) {
    const Form form = form_of(it);
    if (!mark(kContainer, static_cast<std::size_t>(PyObject_TypeCheck(it, &PyTuple_Type) ? PyTuple_GET_SIZE(it) : 0)) ||
        !a_type(it)) {
      return false;
    }
    std::vector<Ref> items;
    each_item(it, form, [&](const Ref& inner) { items.push_back(inner); });
    if (!mark(kContainer, items.size())) return false;
    const bool pairs = form == Form::kDict && items.size() % 2 == 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto segment = [&] {
        return pairs ? key_segment(items[i - i % 2].get()) : index_segment(static_cast<Py_ssize_t>(i));
      };
      if (!part(items[i].get(), segment)) return false;
    }
    return true;
  }

  // Whether nothing of a value can change: of an item of a set, which has no order by which it could be walked.
  static bool is_immutable_value(PyObject* it) {
    if (is_plain_constant(it)) return true;
    const DepthGuard guard;
    const bool is_set = PyFrozenSet_CheckExact(it);
    if (!is_set && !PyTuple_CheckExact(it)) return TypeTable::instance().find(it).is_enum;
    bool all = true;
    each_item(it, is_set ? Form::kFrozenSet : Form::kTuple,
              [&](const Ref& item) { all = all && is_immutable_value(item.get()); });
    return all;
  }

  bool set_of_constants(PyObject* it) {
    const Ref items = Ref::checked(PyFrozenSet_New(items_of_set(it).get()));
    return is_immutable_value(items.get()) && mark(kContainer) && a_type(it) && constant(items.get());
  }

  bool accessor(PyObject* it) {
    if (!mark(kDescriptor) || !object(reinterpret_cast<PyObject*>(Py_TYPE(it)))) return false;
    const bool is_property = Py_IS_TYPE(it, &PyProperty_Type);
    for (const char* name : {is_property ? "fget" : "__func__", "fset", "fdel"}) {
      const bool is_cached = reinterpret_cast<PyObject*>(Py_TYPE(it)) == hooks().cached_property.get();
      const Ref function = attribute(it, is_cached ? "func" : name);
      if (!part(function.get(), [&] { return std::string(".") + name; })) return false;
      if (!is_property) break;
    }
    return true;
  }

  // ---- Callables.

  bool function(PyObject* it) {
    const auto* known = reinterpret_cast<PyFunctionObject*>(it);
    const Ref code = Ref::borrow(known->func_code), globals = Ref::borrow(known->func_globals);
    const Ref builtins = Ref::borrow(known->func_builtins);
    const bool library = is_of_installed_module(globals.get());
    // What is compared with a function that was walked is walked, whoever defines it.
    if (known_ == nullptr && library && reads_outside(it)) return false;
    if (known_ == nullptr && library && is_of_library(it)) return immutable(it);
    const bool is_root = kept_.size() == 1;
    if (!mark(kFunction, library ? 1 : 0) || !item(Readings::Item::kCode, 0, code.get())) return false;
    const std::size_t names_at = known_ == nullptr ? record_->items_.size() - 1 : at_ - 1;
    const auto* names = reinterpret_cast<PyCodeObject*>(code.get());
    const auto cells = static_cast<std::size_t>(names->co_nfreevars);
    std::vector<Ref> held;
    all_held(it, CallableSort::kFunction, [&](std::size_t, PyObject* inner) {
      held.push_back(Ref::borrow(inner));
      return true;
    });
    // One with attributes may be called by another signature, which knows no defaults.
    const bool bare = bare_ && is_root && !held.back();
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto segment = [&]() -> std::string {
        if (i >= cells) return "a default";
        const int at = names->co_nlocalsplus - names->co_nfreevars + static_cast<int>(i);
        return "closure cell '" + exact_text(PyTuple_GET_ITEM(names->co_localsplusnames, at)) + "'";
      };
      if (bare && i >= cells && i < cells + 2) continue;
      if (!library && i < cells && is_written_cell(code.get(), i, held[i].get())) {
        note(segment() + ", to which it writes");  // what it writes is its own
        return false;
      }
      const bool is_dict = i + 1 == held.size() && held[i];
      if (is_dict ? !attributes_of(held[i].get()) : !part(held[i].get(), segment)) return false;
    }
    for (PyObject* name : {known->func_name, known->func_qualname}) {
      if (!constant(name)) return false;
    }
    return library ? constant(globals.get()) : globals_of(globals.get(), builtins.get(), names_at);
  }

  bool attributes_of(PyObject* dict) {
    const Ref items = items_of_dict(dict);
    if (!mark(kInstance, static_cast<std::size_t>(PyList_GET_SIZE(items.get())))) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject* pair = PyList_GET_ITEM(items.get(), i);
      PyObject* name = PyTuple_GET_ITEM(pair, 0);
      if (!part(name, [] { return std::string(".__dict__"); }) ||
          !part(PyTuple_GET_ITEM(pair, 1), [&] { return "attribute '" + exact_text(name) + "'"; })) {
        return false;
      }
    }
    return true;
  }

  // The globals that the code names, each followed through modules by the attributes that it names.
  bool globals_of(PyObject* globals, PyObject* builtins, std::size_t names_at) {
    if (known_ == nullptr) {
      Readings::Item& mine = record_->items_[names_at];
      const Ref code = mine.object;
      const Ref found = Ref::checked(PyObject_CallOneArg(hooks().global_names.get(), code.get()));
      record_->items_[names_at].names = Ref::borrow(PyTuple_GET_ITEM(found.get(), 0));
      PyObject* unknown = PyTuple_GET_ITEM(found.get(), 1);
      if (unknown != Py_None) {
        note(exact_text(unknown));
        return false;
      }
    }
    const Ref names = known_ == nullptr ? record_->items_[names_at].names : known_->items_[names_at].names;
    if (!mark(kGlobals, static_cast<std::size_t>(PyTuple_GET_SIZE(names.get())))) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
      if (!global(globals, builtins, PyTuple_GET_ITEM(names.get(), i))) return false;
    }
    return true;
  }

  bool global(PyObject* globals, PyObject* builtins, PyObject* chain) {
    PyObject* name = PyTuple_GET_ITEM(chain, 0);
    Ref found = look_up(globals, name);
    if (!found && PyDict_Check(builtins) != 0) found = look_up(builtins, name);
    std::string path = exact_text(name);
    for (Py_ssize_t i = 1; found && PyModule_Check(found.get()) && i < PyTuple_GET_SIZE(chain); ++i) {
      name = PyTuple_GET_ITEM(chain, i);
      Ref next = look_up(PyModule_GetDict(found.get()), name);
      if (!next) break;  // made by the module when it is asked for, or absent
      found = std::move(next);
      path += "." + exact_text(name);
    }
    return part(found.get(), [&] { return "global '" + path + "'"; });
  }

  bool callable(PyObject* it, CallableSort sort) {
    if (sort == CallableSort::kJitted) {
      const Ref read = Ref::checked(PyObject_CallOneArg(hooks().jitted_parts.get(), it));
      if (!PyTuple_Check(read.get())) return false;
      return mark(kJitted) && part(PyTuple_GET_ITEM(read.get(), 0), [] { return std::string(".__wrapped__"); }) &&
             part(PyTuple_GET_ITEM(read.get(), 1), [] { return std::string(".<options>"); });
    }
    if (sort == CallableSort::kWrapper) {
      const Ref key = attribute(attribute(it, "_options").get(), "key");
      return mark(kWrapper) && part(wrapped_callable(it).get(), [] { return std::string(".__wrapped__"); }) &&
             part(attribute(it, "__self__").get(), [] { return std::string(".__self__"); }) &&
             part(key.get(), [] { return std::string(".<options>"); });
    }
    if (!mark(kPartial) || !object(reinterpret_cast<PyObject*>(Py_TYPE(it)))) return false;
    for (std::size_t i = 0; i < 3; ++i) {
      const Ref inner = Ref::checked(PyObject_GetAttr(it, partial_names()[i]));
      if (!part(inner.get(), [&] { return attribute_segment(partial_names()[i]); })) return false;
    }
    return state(it);
  }

  // ---- Classes and instances.

  bool a_type(PyObject* it) {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(it));
    return part(type, [] { return std::string(".__class__"); });
  }

  bool a_class(PyObject* it) {
    auto* type = reinterpret_cast<PyTypeObject*>(it);
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return immutable(it);
    if (is_library_class(type)) return object(it);
    if (!mark(kClass) || !object(it) || !a_type(it)) return false;
    const Ref mro = Ref::borrow(type->tp_mro);
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(mro.get()); ++i) {
      if (!part(PyTuple_GET_ITEM(mro.get(), i), [] { return std::string(".__mro__"); })) return false;
    }
    const Ref members = Py_TYPE(it) == &PyType_Type ? Ref() : maybe_attribute(it, "_member_map_");
    if (!members) forgive();
    const bool is_enum = static_cast<bool>(members);
    const Ref dict = attribute(it, "__dict__");
    const Ref items = Ref::checked(PyMapping_Items(dict.get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items.get(), i), 0),
               *entry = PyTuple_GET_ITEM(PyList_GET_ITEM(items.get(), i), 1);
      if (PyUnicode_Check(name) == 0) return false;
      // Members of an enumeration never change.
      if (is_about_class(name) || (is_enum && PyFunction_Check(entry) == 0)) continue;
      if (!constant(name) || !part(entry, [&] { return attribute_segment(name); })) return false;
    }
    return mark(kClass, static_cast<std::size_t>(PyList_GET_SIZE(items.get())));
  }

  static bool is_library_class(PyTypeObject* type) {
    const Ref module = look_up(type->tp_dict, "__module__");
    return module && is_installed(module.get());
  }

  bool instance(PyObject* it) {
    // By identity, unless its class says that others may be equal.
    const auto content = [] { return std::string(".<content>"); };
    if (!mark(kInstance) || !a_type(it) || !part(content_of(it).get(), content) || !state(it)) return false;
    const PyTypeObject* type = Py_TYPE(it);
    const bool is_value =
        type->tp_richcompare != PyBaseObject_Type.tp_richcompare && type->tp_hash != PyObject_HashNotImplemented;
    const bool is_namespace = std::strcmp(type->tp_name, "types.SimpleNamespace") == 0;  // a container as a dict is
    if (is_value || is_namespace) return true;
    if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(it))) return object(it);
    return !has_state(it) && constant(it);  // a mark, as a class without slots gives many
  }

  static bool has_state(PyObject* it) {
    bool found = false;
    each_attribute(it, [&](PyObject*, const Ref&) { found = true; });
    return found;
  }

  bool state(PyObject* it) {
    std::vector<std::pair<Ref, Ref>> attributes;
    each_attribute(it, [&](PyObject* name, const Ref& inner) { attributes.emplace_back(Ref::borrow(name), inner); });
    if (!mark(kInstance, attributes.size())) return false;
    for (const auto& [name, inner] : attributes) {
      PyObject* known = name.get();
      if (!part(known, [] { return std::string(".__dict__"); })) return false;
      if (!part(inner.get(), [&] { return attribute_segment(known); })) return false;
    }
    return true;
  }

  Readings* record_ = nullptr;
  const Readings* known_;
  std::string* difference_ = nullptr;
  bool bare_;
  std::size_t at_ = 0;
  std::unordered_map<PyObject*, std::size_t> met_;
  std::vector<Ref> kept_;          // so that the addresses in `met_` are not used again
  std::vector<std::string> path_;  // innermost first
  std::string first_;              // the outermost variable
};

std::shared_ptr<Readings> Readings::of(PyObject* callable, bool bare) {
  auto readings = std::make_shared<Readings>();
  readings->bare_ = bare;
  ReadingWalk walk(*readings, bare);
  if (!walk.all(callable)) {
    const std::string place = walk.place();
    readings->unproven_ = place.empty() ? "it" : place;
    readings->items_.clear();
  }
  return readings;
}

bool Readings::match(PyObject* callable, std::string* difference) const {
  if (!proven()) return false;
  ReadingWalk walk(*this, difference);
  const bool same = walk.all(callable);
  if (!same && difference != nullptr) *difference = walk.place();
  return same;
}

}  // namespace partax
