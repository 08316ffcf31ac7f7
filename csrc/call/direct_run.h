// A compiled program that runs on a list of arrays, most of which are the same in each run: past jax's dispatch, where
// all is as it was when that was looked at.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "call/entry_table.h"

namespace partax {

class DirectRun {
 public:
  // Of an entry's target, which has returned this for these leaves; `free` are those that other runs have anew. Null
  // where jax's dispatch has to look at each run.
  static std::shared_ptr<DirectRun> make(const Entry& entry, const LeafBuffer& leaves,
                                         const std::vector<std::uint32_t>& free, const Ref& returned);

  // Whether the free leaves are such, and what jax is set to is what it was.
  bool is_for(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free);
  // What the target would return; null where another thread is at it.
  Ref run(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free);
  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, free_, expected_, properties_, settings_, context_, execute_, handlers_, arguments_,
                     node_);
  }

 private:
  // What jax tells programs apart by: its properties of an array, or the values of one. It looks at the layout of those
  // that are committed alone.
  enum : std::uint8_t { kAval, kSharding, kCommitted, kLayout, kNumProperties };
  using Signature = std::array<Ref, kNumProperties>;
  // A property of some object's, and the value that it had.
  struct Setting {
    Ref property, of, value;
    int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, property, of, value); }
  };

  Signature signature(PyObject* array) const;
  bool is_of(Signature& known, PyObject* array) const;
  bool are_expected(const Ref& arrays);

  Signature properties_;
  std::vector<Signature> free_;
  std::vector<Py_ssize_t> places_;  // of each free leaf in the list; -1 where the program does not need it
  Ref context_;                     // jax's, that a trace depends on
  std::vector<Setting> settings_;   // what else a run depends on
  Ref execute_, handlers_;
  Ref arguments_;                    // the list, with None for what is free; null while a run has it
  Ref node_;                         // what the target has returned; null for one array alone
  std::vector<Signature> expected_;  // of its arrays, until the first run has given such
  bool is_other_ = false;            // it has not: this jax has what it takes otherwise
};

}  // namespace partax
