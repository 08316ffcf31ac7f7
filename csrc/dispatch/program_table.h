// Programs keyed by static parts: bounded, least recently used first out, and dropped when something in a key dies that
// no re-created callable can equal.
#pragma once

#include <list>
#include <unordered_map>

#include "dispatch/bound_call.h"
#include "dispatch/jit_function.h"
#include "dispatch/output.h"
#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"

namespace partax {

class ProgramTable;
class TargetRun;

// What calls of a program run.
struct Target {
  Ref jitted;                // the jax.jit; empty while it is being made
  Ref callable;              // the same, or what runs stored programs
  Ref stored;                // the `Programs` of that, if programs are stored
  Ref function;              // what jax traces while the target is made: all threads that make it at once share it
  bool takes_tuple = false;  // the leaves are one tuple, and not each an argument
  bool waits = false;        // a call waits for its result: some trace may raise an error of Equinox's
};

// How a target treats the leaves: each is donated, forwarded, or neither.
struct LeafUse {
  std::vector<std::uint8_t> not_forwardable;  // of each leaf: it is donated, or has a sharding of its own
  std::vector<std::uint8_t> donated;          // of each leaf; empty if none is donated
  std::vector<std::uint32_t> forwarded;       // the leaves that some trace forwards, in order
};

// One trace of a program: its number among the callable's, and its calls if its result identifies them.
struct ProgramTrace {
  std::size_t number;
  std::shared_ptr<std::size_t> calls;
};

// Of the key of a function that may change objects in its arguments, which a match keeps.
struct KeyObjects {
  explicit KeyObjects(TreeSpec& key);
  std::vector<std::uint32_t> nodes;  // of the key, in order
  bool is_complete = false;          // Python has found no other objects: a call needs no Python to find them
  std::vector<PyObject*> distinct;   // the addresses in the last call that was checked: no object was there twice
};

// The callables of a key.
struct CallableSummary {
  bool are_provable = true;         // re-created ones may get its program
  bool any_lives = true;            // also where the key has no callables
  std::size_t num_array_bytes = 0;  // of the arrays that they can read
};

// Where a program is in its table.
struct TablePlace {
  ProgramTable* table = nullptr;
  std::size_t hash = 0;
  std::size_t used = 0;  // when it was found last
  std::list<std::shared_ptr<struct Program>>::iterator recency;
};

struct Program : std::enable_shared_from_this<Program> {
  Program() = default;
  ~Program();  // empties the slots of its outputs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void add_output(const std::shared_ptr<OutputSlot>& slot);
  CallableSummary callables() const;
  bool is_in(const ProgramTable& table) const noexcept { return place.table == &table; }
  // For the garbage collector, which counts each report: of several owners none may report the program.
  int traverse(visitproc visit, void* arg) const;

  TreeSpec key;  // sealed
  CallShape shape;
  std::uint64_t epoch = 0;
  Ref cache;  // only in the table of all caches: a CallCache, instead of a target
  Target target;
  LeafUse leaves;
  std::string difference;  // why it is not the program of an earlier re-created callable, if that is why it is new
  std::vector<ProgramTrace> traces;
  std::size_t tracing = 0;  // traces that have begun, in any thread
  std::size_t calls = 0;
  std::vector<std::weak_ptr<OutputSlot>> outputs;
  std::unique_ptr<KeyObjects> objects;  // null without the option `graph`
  std::weak_ptr<Program> successor;     // the program that followed this one last time: the first guess when it differs
  TargetRun* runs = nullptr;            // of the target, the latest first
  TablePlace place;
};
using ProgramPtr = std::shared_ptr<Program>;
// The caller must hold a ProgramPtr to each program that it goes on with: comparing keys runs user code, which may call
// the same wrapper, and so may destroying a program; both may change the table. They run where it is consistent, and a
// key is never compared twice for one answer.
class ProgramTable {
 public:
  explicit ProgramTable(std::size_t max_size) : max_size_(max_size) {}
  ~ProgramTable();
  ProgramTable(const ProgramTable&) = delete;
  ProgramTable& operator=(const ProgramTable&) = delete;

  // The program of an equal key, which becomes the most recent one; or null. Raises what TreeSpec::equals does.
  ProgramPtr find(const TreeSpec& spec, const CallShape& shape);
  // The same, or a new program without a value; drops the least recently used one if there are too many. Threads that
  // look for one key at once get one program.
  ProgramPtr find_or_insert(const TreeSpec& spec, const CallShape& shape);
  // See TreeSpec::difference: of the latest program of the same structure whose callables are another's.
  std::pair<std::size_t, std::string> difference(const TreeSpec& spec, const CallShape& shape) const;
  // The program used last, or null.
  ProgramPtr latest() const noexcept { return recency_.empty() ? ProgramPtr() : recency_.front(); }
  // It must be in the table.
  void touch(Program& program) noexcept {
    program.place.used = ++uses_;
    recency_.splice(recency_.begin(), recency_, program.place.recency);
  }
  void erase(Program& program) noexcept;
  // After a call that failed: drops a program that has never run (one from a store may) and that no call traces.
  void erase_untraced(Program& program) noexcept;
  void clear() noexcept {
    std::list<ProgramPtr> dropped;  // destroyed at the end, when the table is consistent
    while (!recency_.empty()) dropped.splice(dropped.end(), unlink(*recency_.front()));
  }
  std::size_t size() const noexcept { return recency_.size(); }
  std::size_t max_size() const noexcept { return max_size_; }
  std::vector<ProgramPtr> all() const { return {recency_.begin(), recency_.end()}; }
  int traverse(visitproc visit, void* arg) const;

 private:
  // As the callback of a weak reference: it needs no memory.
  static PyObject* on_death(PyObject* capsule, PyObject* weakref) noexcept;
  PyObject* callback();
  std::list<ProgramPtr> unlink(Program& program) noexcept;  // out of all containers, for the caller to destroy
  // Makes the program found by its key; if that fails, nothing has changed.
  void enlist(const ProgramPtr& program);
  // The programs of a hash, the latest first: comparing runs user code, which may change this table.
  std::vector<ProgramPtr> candidates(const TreeSpec& spec, const CallShape& shape) const;

  std::size_t max_size_;
  std::size_t uses_ = 0;
  std::list<ProgramPtr> recency_;  // most recent first
  std::unordered_multimap<std::size_t, ProgramPtr> by_hash_;
  struct Part {
    Program* program;
    bool is_callable;
  };
  std::unordered_map<PyObject*, Part> by_weakref_;
  Ref callback_;               // it holds the address of this table, or null once that is gone
  std::size_t additions_ = 0;  // counts the keys that were added
};

}  // namespace partax
