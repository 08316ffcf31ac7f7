// Keeps the garbage collector from starting, as it may with any new object in Python 3.11; and then it runs any code.
#pragma once

#include "base/python_api.h"

namespace partax {

// No garbage collection starts in here. Only around what runs nobody's code and keeps the GIL: so nobody can see the
// switch meanwhile, nor set it.
class CollectionPause {
 public:
  CollectionPause() noexcept : enabled_(PyGC_Disable() != 0) {}
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;
  ~CollectionPause() {
    if (enabled_) PyGC_Enable();
  }

 private:
  bool enabled_;
};

}  // namespace partax
