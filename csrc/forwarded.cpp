#include "forwarded.h"

#include "node_kind.h"

namespace partax {
namespace {

// Whether a leaf is an array of jax that has been deleted or given away.
bool is_deleted(PyObject* leaf) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(leaf)) != hooks().jax_array_type.get() &&
      TypeTable::instance().find(leaf).sort != LeafSort::kJaxArray) {
    return false;
  }
  static PyObject* const name = Ref::checked(PyUnicode_InternFromString("is_deleted")).release();
  const Ref answer = Ref::checked(PyObject_CallMethodNoArgs(leaf, name));
  return checked_int(PyObject_IsTrue(answer.get())) == 1;
}

// The objects at some leaves: hashed by address, without an allocation for up to kInline / 2 of them.
class Objects {
 public:
  Objects(const std::vector<std::uint8_t>& chosen, const LeafBuffer& leaves) {
    std::size_t count = 0;
    for (const std::uint8_t one : chosen) count += one != 0 ? 1 : 0;
    std::size_t size = kInline;
    while (size < 2 * count) size *= 2;
    if (size > kInline) {
      heap_.resize(size);
      slots_ = heap_.data();
    }
    mask_ = size - 1;
    for (std::size_t i = 0; i < chosen.size() && i < leaves.size(); ++i) {
      if (chosen[i] != 0) *find(leaves[i]) = leaves[i];
    }
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  bool contains(PyObject* object) noexcept { return *find(object) != nullptr; }

 private:
  PyObject** find(PyObject* object) noexcept {
    std::size_t at = (reinterpret_cast<std::uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15ull >> 32;
    while (slots_[at & mask_] != nullptr && slots_[at & mask_] != object) ++at;
    return &slots_[at & mask_];
  }

  static constexpr std::size_t kInline = 64;
  PyObject* inline_[kInline] = {};
  std::vector<PyObject*> heap_;
  PyObject** slots_ = inline_;
  std::size_t mask_ = 0;
};

// The Python that raises is imported only where a call may fail.
Ref raiser(const char* name) {
  const Ref module = Ref::checked(PyImport_ImportModule("partax._forwarded"));
  return attribute(module.get(), name);
}

Ref bytes_of(const std::vector<std::uint8_t>& flags) {
  return Ref::checked(
      PyBytes_FromStringAndSize(reinterpret_cast<const char*>(flags.data()), static_cast<Py_ssize_t>(flags.size())));
}

}  // namespace

bool may_lose_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  if (entry.donated.empty() || entry.forwarded.empty()) return false;
  Objects donated(entry.donated, leaves);
  std::size_t next = 0;
  while (next < entry.forwarded.size()) {  // asking runs Python, and another thread may trace
    const std::size_t i = entry.forwarded[next++];
    if (i < leaves.size() && (donated.contains(leaves[i]) || is_deleted(leaves[i]))) return true;
  }
  return false;
}

void refuse_lost_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  const Ref target = entry.value;
  Ref::checked(PyObject_CallFunctionObjArgs(raiser("refuse_lost").get(), target.get(), leaves.tuple().get(),
                                            bytes_of(entry.donated).get(), nullptr));
}

void check_forwarded(const Entry& entry, PyObject* returned, const LeafBuffer& leaves, bool were_there) {
  if (!is_output_node(returned)) return;
  const std::shared_ptr<const TraceOutput> output = output_of(returned);
  for (const std::int32_t source : output->source) {
    if (source >= 0) continue;
    const std::size_t i = ~static_cast<std::size_t>(source);
    if (!is_deleted(leaves[i])) continue;
    const Ref target = entry.value;
    const Ref index = Ref::checked(PyLong_FromSize_t(i));
    Ref::checked(PyObject_CallFunctionObjArgs(raiser("raise_lost").get(), target.get(), leaves.tuple().get(),
                                              bytes_of(entry.donated).get(), index.get(),
                                              were_there ? Py_True : Py_False, nullptr));
    return;
  }
}

}  // namespace partax
