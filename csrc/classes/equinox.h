// What Equinox puts into its modules beside their fields. Known once the first module is met.
#pragma once

#include "base/hooks.h"

namespace partax {

struct Equinox {
  Kept missing;        // its marker of an absent field, or null
  Kept wrapper_names;  // the names that it keeps on modules which wrap a function: a tuple
};

inline Equinox of_equinox;
inline Equinox& equinox() noexcept { return of_equinox; }

}  // namespace partax
