// Keeps the garbage collector from starting, as it may with any new object in Python 3.11; and then it runs any code.
// From 3.12 on it starts between two instructions of Python alone.
#pragma once

#include "base/python_api.h"

namespace partax {

#if PY_VERSION_HEX < 0x030C0000

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

#else

class [[maybe_unused]] CollectionPause {};

#endif

}  // namespace partax
