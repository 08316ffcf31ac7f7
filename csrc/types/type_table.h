// What an object is, by its type: a leaf of some sort, or a node of some family.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "base/hooks.h"
#include "types/layout.h"

namespace partax {

enum class Kind : std::uint8_t {
  kDynamicLeaf,
  kStaticLeaf,
  kStaticRun,  // consecutive static leaves of one sequence, stored as one node
  kNone,
  kTuple,
  kList,
  kDict,
  kOrderedDict,
  kDefaultDict,
  kNamedTuple,
  kModule,
  kDataclass,
  kDeclared,  // registered with functions that do no more than a library or the user has declared
  kRegistered,
  kEntries,  // one that keeps its parts in a dictionary or in slots: see Layout
  kStatic,   // a node without children that is its own aux data: partax.tree.Static, partax.tree.FlatSpec
  kCall,     // the arguments of one call; only ever the outermost node
};

// Those that filter_jit traces are from kJaxArray to kAbstract.
enum class LeafSort : std::uint8_t {
  kOther,
  kJaxArray,
  kTracer,
  kNumpyArray,
  kNumpyScalar,
  kRef,
  kAbstract,  // jax.ShapeDtypeStruct
  kBoolOrInt,
  kFloatOrComplex,
};

// A field at its place in the dictionary of an instance.
struct PlacedField {
  PyObject* name;     // borrowed from the TypeInfo
  std::size_t index;  // into children followed by statics
};

// Of a class with registered functions. They keep nothing alive that jax does not keep for good.
struct RegisteredFunctions {
  Ref flatten, unflatten;
  Ref error;  // why what a user declares of these is wrong, or null
};

// What instances are as static values: partax._families.comparison.Traits.
struct StaticTraits {
  std::optional<std::vector<Ref>> compared;  // of a frozen dataclass: the fields that its == compares
  bool is_installed = false;                 // Python or an installed library defines the class
  bool is_enum = false;                      // they are the members of an enumeration
  Ref equal_by;                              // the attribute by whose == alone they compare, of some that do
};

// Everything partax knows about one Python type.
struct TypeInfo {
  PyTypeObject* type = nullptr;  // borrowed: see `weak_type`
  Ref weak_type;
  Kind kind = Kind::kStaticLeaf;
  LeafSort sort = LeafSort::kOther;
  std::vector<Ref> child_names;          // attribute families: interned field names, in flatten order
  std::vector<Ref> static_names;         // attribute families: interned names of the static fields
  std::unique_ptr<const Layout> layout;  // of kEntries
  RegisteredFunctions functions;
  StaticTraits traits;
  // kDataclass, kDeclared: where the fields are, children first, if all are in slots; else they are in the dictionary.
  std::vector<Py_ssize_t> offsets;
  // The order in which the fields of a new instance are set; empty if the class is called instead, as for a partial.
  std::vector<std::uint32_t> set_order;
  bool is_frozen = false;   // its instances never change, and have no attributes outside of the tree
  bool is_builtin = false;  // one that is read so whatever is registered
  // The two orders that dictionaries of instances with all fields and nothing else had last, often that of `__init__`
  // and of rebuilding: a guess that makes reading one pass.
  mutable std::vector<PlacedField> orders[2];
};
using TypeInfoPtr = std::shared_ptr<const TypeInfo>;

// The caller must hold the object that it asks about: what is found of a type lives as long as that type. Whoever runs
// Python code between finding and reading keeps it by `shared`.
class TypeTable {
 public:
  static TypeTable& instance();
  // The description of `object`'s type; asks Python once for each type.
  const TypeInfo& find(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    const TypeInfo* cached = recent_[slot(type)];
    return cached != nullptr && cached->type == type ? *cached : find_slow(object);
  }
  // What an object is in a tree: as `find`, but a method of a node is a node itself, with that one as its child.
  const TypeInfo& find_in_tree(PyObject* object) {
    const TypeInfo& info = find(object);
    const bool is_method = info.kind == Kind::kStaticLeaf && PyMethod_Check(object) != 0;
    return is_method && find(PyMethod_GET_SELF(object)).kind != Kind::kStaticLeaf ? method_of_node() : info;
  }
  TypeInfoPtr shared(const TypeInfo& info) const;
  // Runs as the callback of the type's weak reference: it needs no memory.
  void forget(PyTypeObject* type, PyObject* weak_type) noexcept;
  // Has a type described again when it is next found.
  void read_anew(PyTypeObject* type);
  // Counts the registrations that turned a known leaf type into a node: older keys are void. Where jax has no
  // dictionary of them, each known leaf type is asked about each time, which runs Python.
  std::uint64_t epoch() {
    PyObject* registered = hooks.registered.get();
    if (registered == nullptr || PyDict_GET_SIZE(registered) != registrations_) refresh_registrations();
    return epoch_;
  }

 private:
  TypeTable() = default;
  static std::size_t slot(PyTypeObject* type) noexcept {
    return (reinterpret_cast<std::uintptr_t>(type) >> 4) % kRecent;
  }
  const TypeInfo& find_slow(PyObject* object);
  const TypeInfo& method_of_node();
  void refresh_registrations();

  static constexpr std::size_t kRecent = 509;
  const TypeInfo* recent_[kRecent] = {};
  Py_ssize_t registrations_ = 0;
  std::uint64_t epoch_ = 0;
  std::unordered_map<PyTypeObject*, TypeInfoPtr> types_;
  TypeInfoPtr method_;  // of methods of nodes
};

// True for leaves that filter_jit traces: arrays of jax and NumPy, tracers, refs; `abstract` adds ShapeDtypeStruct.
inline bool is_dynamic_sort(LeafSort sort, bool abstract) noexcept {
  return sort >= LeafSort::kJaxArray && sort <= (abstract ? LeafSort::kAbstract : LeafSort::kRef);
}

inline bool is_dynamic(PyObject* object, bool abstract) {
  if (hooks.jax_array_type.is(Py_TYPE(object))) return true;
  const TypeInfo& info = TypeTable::instance().find(object);
  return info.kind == Kind::kStaticLeaf && is_dynamic_sort(info.sort, abstract);
}

const char* kind_name(Kind kind) noexcept;

inline bool is_dict(Kind kind) noexcept {
  return kind == Kind::kDict || kind == Kind::kOrderedDict || kind == Kind::kDefaultDict;
}

// Whether the registered functions of a class tell what its children are called.
inline bool is_named_by_functions(Kind kind) noexcept {
  return kind == Kind::kRegistered || kind == Kind::kDeclared || kind == Kind::kEntries;
}

}  // namespace partax
