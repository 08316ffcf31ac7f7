#include "partition/parts_by_type.h"

namespace partax {

void PartsByType::remember(PyObject* object, const Scope& scope, Reach reach, std::uint32_t part) {
  if (reach == Reach::kObject || scope.version == 0) return;
  if (2 * (count_ + 1) > entries_.size()) grow();
  PyTypeObject* type = Py_TYPE(object);
  Entry& entry = entries_[position(type)];
  if (!entry.type) {
    entry.type = Ref::borrow(reinterpret_cast<PyObject*>(type));
    ++count_;
  }
  entry.scope = scope;
  entry.reach = reach;
  entry.part = part;
}

void PartsByType::grow() {
  std::vector<Entry> former(entries_.empty() ? 32 : 2 * entries_.size());
  former.swap(entries_);
  for (Entry& entry : former) {
    if (!entry.type) continue;
    entries_[position(reinterpret_cast<PyTypeObject*>(entry.type.get()))] = std::move(entry);
  }
}

}  // namespace partax
