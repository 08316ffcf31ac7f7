#include "call/forwarded.h"

#include "base/python_hooks.h"
#include "call/user_result.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// Whether a leaf is an array of jax that has been deleted or given away.
bool is_deleted(PyObject* leaf) {
  static Name name("is_deleted");
  Ref answer;
  if (hooks().jax_array_type.is(Py_TYPE(leaf))) {
    static Kept of_arrays;
    if (!of_arrays) of_arrays.set(Ref::checked(PyObject_GetAttr(hooks().jax_array_type.get(), name.get())).get());
    answer = Ref::checked(PyObject_Vectorcall(of_arrays.get(), &leaf, 1, nullptr));
  } else {
    if (TypeTable::instance().find(leaf).sort != LeafSort::kJaxArray) return false;
    answer = Ref::checked(PyObject_CallMethodNoArgs(leaf, name.get()));
  }
  return answer.get() != Py_False && (answer.get() == Py_True || checked_int(PyObject_IsTrue(answer.get())) == 1);
}

Ref bytes_of(const std::vector<std::uint8_t>& flags) {
  return Ref::checked(
      PyBytes_FromStringAndSize(reinterpret_cast<const char*>(flags.data()), static_cast<Py_ssize_t>(flags.size())));
}

}  // namespace

bool are_any_deleted(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (is_deleted(leaves[i])) return true;
  }
  return false;
}

bool may_lose_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  if (entry.donated.empty() || entry.forwarded.empty()) return false;
  // The donated leaves, hashed by address.
  std::size_t mask = 15;
  while (mask < 2 * leaves.size()) mask = 2 * mask + 1;
  std::vector<PyObject*> donated(mask + 1);
  const auto place_of = [&](PyObject* leaf) -> PyObject*& {
    std::size_t at = (reinterpret_cast<std::uintptr_t>(leaf) >> 4) * 0x9E3779B97F4A7C15ull >> 32;
    while (donated[at & mask] != nullptr && donated[at & mask] != leaf) ++at;
    return donated[at & mask];
  };
  for (std::size_t i = 0; i < entry.donated.size() && i < leaves.size(); ++i) {
    if (entry.donated[i] != 0) place_of(leaves[i]) = leaves[i];
  }
  std::size_t next = 0;
  while (next < entry.forwarded.size()) {  // asking runs Python, and another thread may trace
    const std::size_t i = entry.forwarded[next++];
    if (i < leaves.size() && (place_of(leaves[i]) != nullptr || is_deleted(leaves[i]))) return true;
  }
  return false;
}

void refuse_lost_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  const Ref target = entry.value;
  python::refuse_lost_arrays(target, leaves.tuple(), bytes_of(entry.donated));
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
    python::raise_lost_array(target, leaves.tuple(), bytes_of(entry.donated), index, were_there ? Py_True : Py_False);
    return;
  }
}

}  // namespace partax
