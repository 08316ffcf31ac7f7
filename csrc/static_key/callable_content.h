// What a callable holds and which globals its code names, as a flat list. Equal lists prove in a microsecond that a
// re-created callable is the same; for all others `partax._functions.proof` decides.
#pragma once

#include "base/owned_reads.h"

namespace partax {

class CallableContent {
 public:
  CallableContent() noexcept = default;
  // `globals`: the code of each function that is read by its parts, followed by a tuple of the chains of names by which
  // it reads globals; empty if the callable holds or names something that cannot be read here.
  CallableContent(PyObject* callable, Ref globals);
  bool matches(PyObject* callable) const;
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, globals_, parts_); }

 private:
  Ref globals_;
  std::vector<Ref> parts_;  // weak references to what supports them
};

}  // namespace partax
