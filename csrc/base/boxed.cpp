#include "base/boxed.h"

namespace partax {
namespace {

constexpr int kMaxNested = 50;

thread_local int nested = 0;
thread_local PyObject* waiting = nullptr;

// Once there are no weak references to it, their place has room for the next object that waits.
PyObject*& next_of(PyObject* object) noexcept { return reinterpret_cast<NestableHead*>(object)->weakrefs; }

}  // namespace

void dealloc_nested(PyObject* self, void (*let_go)(PyObject*) noexcept) noexcept {
  if (PyObject_IS_GC(self)) PyObject_GC_UnTrack(self);
  const Turn turn;
  if (reinterpret_cast<NestableHead*>(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  if (nested == kMaxNested) {
    next_of(self) = std::exchange(waiting, self);
    return;
  }
  ++nested;
  let_go(self);
  free_heap_object(self);
  // The outermost one counts itself until the end, or each that waited would be the outermost of the next.
  while (nested == 1 && waiting != nullptr) {
    PyObject* const next = std::exchange(waiting, next_of(waiting));
    next_of(next) = nullptr;
    Py_TYPE(next)->tp_dealloc(next);
  }
  --nested;
}

}  // namespace partax
