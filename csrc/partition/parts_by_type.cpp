#include "partition/parts_by_type.h"

#include "base/predicates.h"

namespace partax {

std::size_t PartsByType::position(const PyTypeObject* type) const noexcept {
  const std::size_t mask = entries_.size() - 1;
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(type));
  std::size_t at = static_cast<std::size_t>((address * 0x9E3779B97F4A7C15ull) >> 32) & mask;
  while (entries_[at].type && entries_[at].type.get() != reinterpret_cast<const PyObject*>(type)) at = (at + 1) & mask;
  return at;
}

const std::uint32_t* PartsByType::find(PyObject* object, const Scope& scope) const {
  if (entries_.empty()) return nullptr;
  const Entry& entry = entries_[position(Py_TYPE(object))];
  if (!entry.type || scope.version == 0 || !(entry.scope == scope)) return nullptr;
  if (entry.reach == Reach::kTypeUnlessConvertible && optional_attribute(object, array_conversion_name())) {
    return nullptr;
  }
  return &entry.part;
}

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
