#include "partition/split.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "partition/filters.h"
#include "partition/one_level.h"
#include "partition/parts_by_type.h"
#include "partition/path_text.h"
#include "statics/callable_parts.h"

namespace partax {
namespace {

using Depth = std::uint32_t;
constexpr Depth kNever = std::numeric_limits<Depth>::max();
constexpr std::uint32_t kUndecided = std::numeric_limits<std::uint32_t>::max();

bool is_numbered(Kind kind) noexcept { return kind == Kind::kTuple || kind == Kind::kList; }

// Follows a walk and gives each leaf to the filter that takes it nearest the root, or the first of several such.
class Splitter final : public WalkObserver {
 public:
  Splitter(SplitTree& result, PyObject* filters, const SplitOptions& options)
      : result_(result), options_(options), count_(static_cast<std::uint32_t>(PyTuple_GET_SIZE(filters))) {
    for (PyObject* filter : Items(filters)) root_.add(reader_.read(filter));
    has_path_ = options.keyed || root_.has_path || root_.has_prefix;
  }

  bool enter(const Step* step, PyObject* object) override {
    is_counted_ = false;
    push_frame(step);
    if (has_path_ && step != nullptr) path_.push(*step);
    Frame& frame = frames_[depth_];
    if (frame.filters->has_prefix) {
      narrow(frame, object);
      match_types(frame, object);
      return false;
    }
    if (options_.is_leaf != nullptr && is_truthy(options_.is_leaf, object, "asking `is_leaf` about")) return true;
    if (!frame.filters->types.empty() && frame.decided == kUndecided && is_node(object)) match_types(frame, object);
    return false;
  }

  bool leaf(PyObject* object) override {
    const Frame& frame = frames_[depth_];
    const std::uint32_t part = frame.decided != kUndecided ? frame.decided : assign(frame, object);
    const bool dynamic = add_part(part);
    if (dynamic && options_.keyed) result_.keys.push_back(exact_unicode(path_.key(options_.separator)));
    if (has_path_ && depth_ > 0) path_.pop();
    --depth_;
    return dynamic;
  }

  std::optional<bool> known_leaf(PyObject* object, const Step& step) override {
    const Frame& parent = frames_[depth_];
    if (root_.has_prefix || options_.is_leaf != nullptr) return {};
    const std::uint32_t* part = &parent.decided;
    if (*part == kUndecided) {
      if (!matched_.empty() || is_named(*parent.filters, depth_ + 1, step.index)) return {};
      part = parts_.find(object, scope(*parent.filters, depth_ + 1, object));
    }
    if (part == nullptr || (options_.keyed && is_dynamic(*part))) return {};
    return add_part(*part);
  }

  void leave() override {
    Frame& frame = frames_[depth_];
    for (; matched_.size() > frame.matched; matched_.pop_back()) type_depth_[matched_.back()] = kNever;
    frame.narrowed.clear();
    if (has_path_ && depth_ > 0) path_.pop();
    --depth_;
  }

 private:
  struct Frame {
    const FilterSet* filters = nullptr;  // that stand at this node
    std::vector<FilterSet> narrowed;     // of each child, under a prefix tree
    std::size_t matched = 0;             // how many types had matched before
    std::size_t serial = 0;              // tells it apart from frames that were here before
    std::uint32_t decided = kUndecided;  // the part of the whole subtree
  };

  // The states of one glob along the path, each good for the frame of that serial.
  struct GlobLevel {
    std::size_t serial = 0;
    PathGlob::States states;
    bool dead = false;
    PathGlob::Indices indices;
  };

  void push_frame(const Step* step) {
    ++depth_;
    if (frames_.size() == depth_) frames_.emplace_back();
    Frame& frame = frames_[depth_];
    frame.serial = ++serial_;
    frame.matched = matched_.size();
    if (depth_ == 0) {
      frame.filters = &root_;
      frame.decided = kUndecided;
      return;
    }
    const Frame& parent = frames_[depth_ - 1];
    if (!parent.filters->has_prefix) {
      frame.filters = parent.filters;
    } else if (step->index < parent.narrowed.size()) {
      frame.filters = &parent.narrowed[step->index];
    } else {
      throw WalkError::diagnosed(PyExc_RuntimeError, "the node changed while partax was walking it");
    }
    frame.decided = parent.decided;
  }

  // ---- Prefix trees: the filters of each child, which are those of a node, each narrowed to what it has there.
  void narrow(Frame& frame, PyObject* object) {
    std::vector<FilterSet> children;
    for (const FilterPtr& filter : frame.filters->filters) {
      const std::vector<FilterPtr> below = narrowed(filter, object);
      while (children.size() < below.size()) children.emplace_back().serial = ++serial_;
      for (std::size_t i = 0; i < below.size(); ++i) children[i].add(below[i]);
    }
    frame.narrowed = std::move(children);
  }

  // What stands of one filter at each child of the node.
  std::vector<FilterPtr> narrowed(const FilterPtr& filter, PyObject* object) {
    Flat level;
    if (filter->op == Filter::Op::kPrefix) return narrowed_prefix(*filter, object);
    flatten_into(level, object, children_only());
    const std::size_t arity = level.leaves.size();
    if (!filter->has_prefix) return std::vector<FilterPtr>(arity, filter);
    std::vector<std::shared_ptr<Filter>> copies(arity);
    for (auto& copy : copies) {
      copy = std::make_shared<Filter>(*filter);
      copy->members.clear();
      copy->has_prefix = false;
    }
    for (const FilterPtr& member : filter->members) {
      const std::vector<FilterPtr> below = narrowed(member, object);
      for (std::size_t i = 0; i < arity; ++i) {
        copies[i]->has_prefix = copies[i]->has_prefix || below.at(i)->has_prefix;
        copies[i]->members.push_back(below.at(i));
      }
    }
    return {copies.begin(), copies.end()};
  }

  std::vector<FilterPtr> narrowed_prefix(const Filter& filter, PyObject* object) {
    if (filter.object.get() == Py_None && object == Py_None) return {};
    Flat prefix, level;
    flatten_into(prefix, filter.object.get(), children_only());
    open_alike(prefix, object, level, "the filter");
    std::vector<FilterPtr> filters;
    filters.reserve(prefix.leaves.size());
    for (std::size_t i = 0; i < prefix.leaves.size(); ++i) {
      filters.push_back(
          below([&] { return child_segment(object, i); }, [&] { return reader_.read(prefix.leaves[i]); }));
    }
    return filters;
  }

  // ---- Types.

  void match_types(Frame& frame, PyObject* object) {
    bool any = false;
    for (const Filter* type : frame.filters->types) {
      if (type_depth(*type) != kNever) continue;
      Reach reach = Reach::kType;
      if (!is_of(*type, object, reach)) continue;
      type_depth_[type->atom] = static_cast<Depth>(depth_);
      matched_.push_back(type->atom);
      any = true;
    }
    if (any && !frame.filters->has_prefix) decide(frame);
  }

  static bool is_of(const Filter& filter, PyObject* object, Reach& reach) {
    return std::any_of(filter.types.begin(), filter.types.end(),
                       [&](const ClassTest& type) { return type.holds(object, reach); });
  }

  // The depth at which a type matched on the way here.
  Depth type_depth(const Filter& filter) {
    if (filter.atom >= type_depth_.size()) type_depth_.resize(reader_.num_atoms(), kNever);
    return type_depth_[filter.atom];
  }

  // The smallest depth at which a filter may still take a leaf below.
  Depth least_depth(const Filter& filter) {
    Depth least = kNever;
    if (filter.op == Filter::Op::kType) return type_depth(filter);
    if (filter.op == Filter::Op::kNot) return least;
    for (const FilterPtr& member : filter.members) least = std::min(least, least_depth(*member));
    return least;
  }

  // The type that matched nearest the root, or the first of several such, and its depth; `none` if no type has.
  std::pair<std::uint32_t, Depth> nearest_type(const std::vector<FilterPtr>& filters, std::uint32_t none) {
    std::pair<std::uint32_t, Depth> nearest{none, kNever};
    for (std::uint32_t i = 0; i < filters.size(); ++i) {
      if (filters[i]->op != Filter::Op::kType || type_depth(*filters[i]) >= nearest.second) continue;
      nearest = {i, type_depth(*filters[i])};
    }
    return nearest;
  }

  // Gives the whole subtree to a type that matched, where no combination may come before it.
  void decide(Frame& frame) {
    const std::vector<FilterPtr>& filters = frame.filters->filters;
    auto [part, nearest] = nearest_type(filters, kUndecided);
    for (std::uint32_t i = 0; i < filters.size() && part != kUndecided; ++i) {
      if (filters[i]->op == Filter::Op::kType) continue;
      const Depth least = least_depth(*filters[i]);
      if (least < nearest || (least == nearest && i < part)) part = kUndecided;
    }
    frame.decided = part;
  }

  // ---- Leaves.

  std::uint32_t assign(const Frame& frame, PyObject* object) {
    const FilterSet& set = *frame.filters;
    if (!matched_.empty()) return first_taker(set, object);
    const bool may_be_named = !set.globs.empty() && depth_ > 0;
    if (may_be_named && is_named(set, depth_, path_.step(depth_ - 1).index)) return first_taker(set, object);
    const PartsByType::Scope here = scope(set, depth_, object);
    if (const std::uint32_t* known = parts_.find(object, here)) return *known;
    reach_ = Reach::kType;
    const std::uint32_t part = first_taker(set, object);
    is_counted_ = false;
    parts_.remember(object, here, reach_, part);
    return part;
  }

  // Of a leaf at a depth. Paths tell the children of one node apart, or not at all.
  PartsByType::Scope scope(const FilterSet& set, std::size_t depth, PyObject* object) {
    const std::size_t parent = set.has_path && depth > 0 ? frames_[depth - 1].serial : 0;
    if (set.has_abstract && !is_counted_) {
      registered_ = size_of_number(Ref::checked(PyObject_CallNoArgs(taken_apart().registrations.get())).get());
      is_counted_ = true;
    }
    return {set.serial, parent, registered_, type_version(Py_TYPE(object))};
  }

  // Gives a leaf to a part; whether it is a dynamic one.
  bool add_part(std::uint32_t part) {
    if (is_dynamic(part)) result_.part.push_back(part);
    return is_dynamic(part);
  }

  bool is_dynamic(std::uint32_t part) const noexcept { return part != count_ || !options_.rest_is_static; }

  std::uint32_t first_taker(const FilterSet& set, PyObject* object) {
    const auto here = static_cast<Depth>(depth_);
    auto [part, nearest] = nearest_type(set.filters, count_);
    for (std::uint32_t i = 0; i < set.filters.size(); ++i) {
      const Filter& filter = *set.filters[i];
      const Depth least = std::min(least_depth(filter), here);
      if (least > nearest || (least == nearest && i >= part)) continue;
      const Depth depth = taken_at(filter, object);
      if (depth > nearest || depth == kNever || (depth == nearest && i > part)) continue;
      nearest = depth;
      part = i;
    }
    return part;
  }

  // The depth at which the filter takes the leaf, or kNever.
  Depth taken_at(const Filter& filter, PyObject* object) {
    const auto here = static_cast<Depth>(depth_);
    const auto if_true = [here](bool takes) { return takes ? here : kNever; };
    switch (filter.op) {
      case Filter::Op::kBool:
        return if_true(filter.value);
      case Filter::Op::kBuiltin:
        return if_true(holds(filter.predicate, object, reach_));
      case Filter::Op::kCallable:
        limit(reach_, reach_of_answer(filter, object));
        return if_true(is_truthy(filter.object.get(), object, "asking the filter about"));
      case Filter::Op::kType:
        return type_depth(filter) != kNever ? type_depth(filter) : if_true(is_of(filter, object, reach_));
      case Filter::Op::kGlob:
        return if_true(glob_takes(filter));
      case Filter::Op::kRegex: {
        limit(reach_, Reach::kObject);
        const Ref path = exact_unicode(path_.slashed());
        const Ref found = Ref::checked(PyObject_CallOneArg(filter.object.get(), path.get()));
        return if_true(found.get() != Py_None);
      }
      case Filter::Op::kAny: {
        Depth nearest = kNever;
        for (const FilterPtr& member : filter.members) {
          if (nearest != kNever && least_depth(*member) >= nearest) continue;
          nearest = std::min(nearest, taken_at(*member, object));
        }
        return nearest;
      }
      case Filter::Op::kAll: {
        Depth nearest = here;
        for (const FilterPtr& member : filter.members) {
          const Depth depth = taken_at(*member, object);
          if (depth == kNever) return kNever;
          nearest = std::min(nearest, depth);
        }
        return nearest;
      }
      case Filter::Op::kNot:
        return if_true(taken_at(*filter.members[0], object) == kNever);
      case Filter::Op::kPrefix:
        break;
    }
    throw WalkError::diagnosed(PyExc_SystemError, "partax: a prefix that was not opened");
  }

  bool glob_takes(const Filter& filter) {
    const PathGlob& glob = *filter.glob;
    if (depth_ == 0) return glob.accepts(glob.start());
    const GlobLevel& parent = glob_level(filter, depth_ - 1);
    if (parent.dead) return false;
    const Step& step = path_.step(depth_ - 1);
    const PathGlob::Indices& indices = parent.indices;
    if (is_numbered(step.kind) && indices.alike &&
        !std::binary_search(indices.named.begin(), indices.named.end(), step.index))
      return indices.taken;
    limit(reach_, Reach::kObject);
    return glob.takes(parent.states, path_.segment(depth_ - 1));
  }

  // Whether some glob names the index of a leaf at a depth, so that it is not like its neighbours.
  bool is_named(const FilterSet& set, std::size_t depth, std::size_t index) {
    if (set.globs.empty()) return false;
    const std::size_t parent = frames_[depth - 1].serial;
    if (named_parent_ != parent || named_filters_ != set.serial) {
      named_.clear();
      for (const Filter* glob : set.globs) {
        const std::vector<std::size_t>& indices = glob_level(*glob, depth - 1).indices.named;
        named_.insert(named_.end(), indices.begin(), indices.end());
      }
      std::sort(named_.begin(), named_.end());
      std::tie(named_parent_, named_filters_) = std::pair(parent, set.serial);
    }
    return std::binary_search(named_.begin(), named_.end(), index);
  }

  // The states of a glob after the segments that lead to the frame at `depth`.
  const GlobLevel& glob_level(const Filter& filter, std::size_t depth) {
    if (globs_.size() < reader_.num_atoms()) globs_.resize(reader_.num_atoms());
    std::vector<GlobLevel>& levels = globs_[filter.atom];
    if (levels.size() <= depth) levels.resize(depth + 1);
    std::size_t known = depth + 1;  // levels below this one are up to date
    while (known > 0 && levels[known - 1].serial != frames_[known - 1].serial) --known;
    for (; known <= depth; ++known) {
      GlobLevel& level = levels[known];
      level.states =
          known == 0 ? filter.glob->start() : filter.glob->step(levels[known - 1].states, path_.segment(known - 1));
      level.dead = std::all_of(level.states.begin(), level.states.end(), [](std::uint64_t s) { return s == 0; });
      level.indices = filter.glob->indices(level.states);
      level.serial = frames_[known].serial;
    }
    return levels[depth];
  }

  SplitTree& result_;
  const SplitOptions& options_;
  const std::uint32_t count_;
  FilterReader reader_;
  FilterSet root_;
  bool has_path_ = false;
  PathText path_;
  std::vector<Frame> frames_;
  std::size_t depth_ = static_cast<std::size_t>(-1);  // of the object met last; the root has 0
  std::size_t serial_ = 0;
  std::vector<Depth> type_depth_;              // by atom
  std::vector<std::size_t> matched_;           // the types that matched on the way here, in order
  std::vector<std::vector<GlobLevel>> globs_;  // by atom
  PartsByType parts_;
  std::vector<std::size_t> named_;  // the indices that globs name under the frame and in the set of these serials
  std::size_t named_parent_ = 0, named_filters_ = 0;
  std::size_t registered_ = 0;  // with abstract classes; counted anew where code of the user's has run
  bool is_counted_ = false;
  Reach reach_ = Reach::kType;  // how far what the filters have answered about the leaf goes
};

}  // namespace

void split(SplitTree& result, PyObject* tree, PyObject* filters, const SplitOptions& options) {
  reading([&] {
    Splitter splitter(result, filters, options);
    FlattenOptions flatten_options = every_leaf(Py_None);
    flatten_options.dynamic_runs = true;
    flatten_options.observer = &splitter;
    Flattener(result.spec, result.leaves, flatten_options).tree(tree);
  });
}

}  // namespace partax
