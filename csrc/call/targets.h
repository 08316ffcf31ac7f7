// Which attributes of which objects the outcome of a trace sets. One static value of it, so that no call makes these
// tuples anew.
#pragma once

#include "base/python_api.h"

namespace partax {

// It is in no cycle, and so no object that a collector knows: a trace that gives it holds nothing of the user's.
struct Targets {
  Ref owners;  // a tuple of their numbers
  Ref names;   // a tuple of strings, as long
};

}  // namespace partax
