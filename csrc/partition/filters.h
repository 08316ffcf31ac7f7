// What a user gives to say which leaves to take: predicates, bools, types, paths, combinations, prefix trees of these.
#pragma once

#include <memory>
#include <optional>

#include "base/hooks.h"
#include "classes/predicates.h"
#include "partition/path_glob.h"

namespace partax {

// The class of filters that are described: partax._pytree.filters.Filter.
inline ImmortalRef described_filter;

// isinstance with a class or a union on the right, without a call of Python where the object's class tells all. That of
// an abstract class is asked, once for each class while nothing is registered with abstract classes.
class ClassTest {
 public:
  // What the metaclass makes of isinstance is read here, once.
  explicit ClassTest(PyObject* asked);
  // isinstance(object, asked); `reach` is limited to how far the answer goes.
  bool holds(PyObject* object, Reach& reach) const;
  // Whether others may be registered as subclasses.
  bool is_abstract() const noexcept { return how_ == How::kAbstract; }

 private:
  enum class How : std::uint8_t { kPlain, kJaxArray, kAbstract, kAsk };

  Ref asked_;
  How how_ = How::kAsk;
};

// A predicate of Equinox's: what it asks about beside an object's class.
struct AsksMore {
  bool dtype = false, conversion = false;
};

struct Filter;
using FilterPtr = std::shared_ptr<const Filter>;

struct Filter {
  enum class Op : std::uint8_t { kBool, kBuiltin, kCallable, kType, kGlob, kRegex, kAny, kAll, kNot, kPrefix };

  Op op = Op::kBool;
  bool value = false;                         // kBool
  Predicate predicate = Predicate::kIsArray;  // kBuiltin
  Ref object;                                 // kCallable: itself; kRegex: its `search`; kPrefix: the tree
  std::optional<AsksMore> equinox;            // kCallable
  std::vector<ClassTest> types;               // kType
  std::shared_ptr<const PathGlob> glob;       // kGlob
  std::size_t atom = 0;                       // kType, kGlob: a number of its own
  std::vector<FilterPtr> members;             // kAny, kAll, kNot
  bool has_prefix = false;                    // itself or a member is a prefix tree
};

// The filters that stand at one place of the tree.
struct FilterSet {
  std::size_t serial = 0;  // tells it apart from sets that were dropped before
  std::vector<FilterPtr> filters;
  std::vector<const Filter*> types;  // every type inside
  std::vector<const Filter*> globs;  // every glob inside
  bool has_prefix = false;
  bool has_path = false;      // any filter that asks for paths
  bool has_abstract = false;  // any type that is an abstract class

  void add(FilterPtr filter) {
    has_prefix = has_prefix || filter->has_prefix;
    survey(*filter);
    filters.push_back(std::move(filter));
  }

 private:
  void survey(const Filter& filter) {
    if (filter.op == Filter::Op::kType) types.push_back(&filter);
    for (const ClassTest& type : filter.types) has_abstract = has_abstract || type.is_abstract();
    if (filter.op == Filter::Op::kGlob) globs.push_back(&filter);
    has_path = has_path || filter.op == Filter::Op::kGlob || filter.op == Filter::Op::kRegex;
    for (const FilterPtr& member : filter.members) survey(*member);
  }
};

// How far the answer of a callable about an object goes.
Reach reach_of_answer(const Filter& filter, PyObject* object);

// Reads filters, and numbers their types and globs.
class FilterReader {
 public:
  // Raises WalkError for what is no filter. A pytree node becomes a kPrefix, whose leaves are read when they are met.
  FilterPtr read(PyObject* filter);
  std::size_t num_atoms() const noexcept { return num_atoms_; }

 private:
  bool read_type(PyObject* object, Filter& filter);
  void read_described(PyObject* object, Filter& filter);

  std::size_t num_atoms_ = 0;
  int depth_ = 0;
};

}  // namespace partax
