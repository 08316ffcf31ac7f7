// The dynamic leaves of one call: owned, contiguous, with the spare slot in front that vectorcall wants.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/python_api.h"

namespace partax {

class LeafBuffer {
 public:
  LeafBuffer() noexcept = default;
  LeafBuffer(const LeafBuffer& other) : own_statics_(other.own_statics_), nodes_(other.nodes_) {
    reserve(other.size_);
    std::copy_n(other.arguments(), other.size_, end());
    own_next(other.size_);
  }
  LeafBuffer& operator=(const LeafBuffer&) = delete;
  ~LeafBuffer() { clear(); }

  void reserve(std::size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }
  void push(Ref leaf) {
    if (size_ == capacity_) grow(2 * capacity_);
    data_[++size_] = leaf.release();
  }
  // Where the next leaves go; `own_next` keeps so many that have been written there, within what was reserved.
  PyObject** end() noexcept { return data_ + size_ + 1; }
  void own_next(std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) Py_INCREF(data_[++size_]);
  }
  void clear() noexcept {
    // In the order in which they were made, most often: what lies in a row is freed in a row.
    for (std::size_t i = 1; i <= size_; ++i) Py_DECREF(data_[i]);
    size_ = 0;
    own_statics_.clear();
    nodes_.clear();
  }

  // A static value of the call that is another object than the equal one of its key: by static index.
  void add_own_static(std::size_t index, PyObject* value) { own_statics_.emplace_back(index, Ref::borrow(value)); }
  // To be called when all are there.
  void sort_own_statics() {
    std::sort(own_statics_.begin(), own_statics_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  // What another one has of a `KeptValues::Part`, for whose leaves there is room.
  template <typename Part>
  void append(const LeafBuffer& other, const Part& part) {
    std::copy_n(other.arguments() + part.first_leaf, part.num_leaves, end());
    own_next(part.num_leaves);
    for (const auto& [index, value] : other.own_statics_) {
      if (index >= part.first_static && index < part.end_static) add_own_static(index, value.get());
    }
    for (const auto& [index, node] : other.nodes_) {
      if (index >= part.first_node && index < part.end_node) keep_node(index, node.get());
    }
  }
  bool has_own_statics() const noexcept { return !own_statics_.empty(); }
  std::size_t num_own_statics() const noexcept { return own_statics_.size(); }
  // Null where it is the key's.
  PyObject* own_static(std::size_t index) const noexcept {
    const auto entry = place_of(own_statics_, index);
    return entry != own_statics_.end() && entry->first == index ? entry->second.get() : nullptr;
  }

  // A node of the call that a result may be: by its index in the key, in order.
  void reserve_nodes(std::size_t count) { nodes_.reserve(count); }
  void keep_node(std::size_t index, PyObject* node) { nodes_.emplace_back(index, Ref::borrow(node)); }
  void swap_nodes(LeafBuffer& other) noexcept { std::swap(nodes_, other.nodes_); }
  std::size_t num_nodes() const noexcept { return nodes_.size(); }
  // Null where it has not been kept. `hint` is a place where it may be, or soon after; then where the next one may be.
  PyObject* node(std::size_t index, std::size_t& hint) const noexcept {
    if (hint >= nodes_.size() || nodes_[hint].first != index) hint = place_of_node(index, hint);
    return hint < nodes_.size() && nodes_[hint].first == index ? nodes_[hint++].second.get() : nullptr;
  }

  std::size_t size() const noexcept { return size_; }
  PyObject* operator[](std::size_t i) const noexcept { return data_[i + 1]; }
  // The leaves as vectorcall arguments; PY_VECTORCALL_ARGUMENTS_OFFSET is allowed.
  PyObject** arguments() const noexcept { return data_ + 1; }
  Ref tuple() const { return tuple_of(data_ + 1, size_); }
  Ref list() const { return list_of(data_ + 1, size_); }
  void replace(std::size_t i, PyObject* leaf) { Ref::steal(std::exchange(data_[i + 1], Py_NewRef(leaf))); }
  int traverse(visitproc visit, void* arg) const {
    for (std::size_t i = 1; i <= size_; ++i) Py_VISIT(data_[i]);
    for (const auto& [index, value] : own_statics_) Py_VISIT(value.get());
    for (const auto& [index, node] : nodes_) Py_VISIT(node.get());
    return 0;
  }

 private:
  static constexpr std::size_t kInline = 48;
  using Numbered = std::vector<std::pair<std::size_t, Ref>>;

  static Numbered::const_iterator place_of(const Numbered& sorted, std::size_t index) noexcept {
    const auto before = [](const auto& entry, std::size_t wanted) { return entry.first < wanted; };
    return std::lower_bound(sorted.begin(), sorted.end(), index, before);
  }

  std::size_t place_of_node(std::size_t index, std::size_t first) const noexcept {
    const std::size_t end = std::min(first + 4, nodes_.size());
    for (std::size_t i = first; i < end; ++i) {
      if (nodes_[i].first == index) return i;
    }
    return static_cast<std::size_t>(place_of(nodes_, index) - nodes_.begin());
  }

  void grow(std::size_t capacity) {
    std::unique_ptr<PyObject*[]> bigger(new PyObject*[capacity + 1]);
    for (std::size_t i = 1; i <= size_; ++i) bigger[i] = data_[i];
    heap_ = std::move(bigger);
    data_ = heap_.get();
    capacity_ = capacity;
  }

  PyObject* inline_[kInline + 1];
  std::unique_ptr<PyObject*[]> heap_;
  PyObject** data_ = inline_;
  std::size_t size_ = 0;
  std::size_t capacity_ = kInline;
  Numbered own_statics_, nodes_;
};

}  // namespace partax
