#include "tree_text.h"

namespace partax {
namespace {

class Printer {
 public:
  explicit Printer(const TreeSpec& spec) : spec_(spec) {}

  std::string print() {
    node();
    return std::move(text_);
  }

 private:
  void value(std::size_t index) {
    const StaticValue& held = spec_.statics[index];
    if (held.absent()) {
      text_ += "<absent>";
      return;
    }
    const Ref object = held.value();
    text_ += object ? exact_text(Ref::checked(PyObject_Repr(object.get())).get()) : "<dropped>";
  }

  void node() {
    const Node& node = spec_.nodes[at_++];
    switch (node.kind) {
      case Kind::kDynamicLeaf:
        text_ += '*';
        return;
      case Kind::kStaticLeaf:
      case Kind::kStatic:
        return value(node.first_static);
      case Kind::kNone:
        text_ += "None";
        return;
      case Kind::kTuple:
        return sequence(node, "(", node.arity == 1 ? ",)" : ")");
      case Kind::kList:
        return sequence(node, "[", "]");
      case Kind::kDict:
        return dict(node);
      case Kind::kOrderedDict:
      case Kind::kDefaultDict:
        text_ += name(node) + '(';
        if (node.kind == Kind::kDefaultDict) {
          value(node.first_static);
          text_ += ", ";
        }
        dict(node);
        text_ += ')';
        return;
      case Kind::kNamedTuple:
      case Kind::kModule:
      case Kind::kDataclass:
        return fields(node);
      case Kind::kRegistered:
        text_ += name(node) + '[';
        value(node.first_static);
        return sequence(node, "](", ")");
      case Kind::kStaticRun:
      case Kind::kDynamicRun:
      case Kind::kCall:
        break;
    }
    text_ += '?';
  }

  static std::string name(const Node& node) {
    const std::string full = node.info->type->tp_name;
    return full.substr(full.rfind('.') + 1);
  }

  void sequence(const Node& node, const char* open, const char* close) {
    text_ += open;
    each_child(node, [](std::size_t) {});
    text_ += close;
  }

  // Prints the children, separated by commas; `before(i)` prints what stands before child i.
  template <typename Before>
  void each_child(const Node& parent, Before&& before) {
    std::uint32_t i = 0;
    const auto next = [&] {
      if (i > 0) text_ += ", ";
      before(i++);
    };
    while (i < parent.arity) {
      const Node& child = spec_.nodes[at_];
      if (child.kind == Kind::kStaticRun || child.kind == Kind::kDynamicRun) {
        ++at_;
        for (std::uint32_t j = 0; j < child.arity; ++j) {
          next();
          if (child.kind == Kind::kStaticRun) {
            value(child.first_static + j);
          } else {
            text_ += '*';
          }
        }
      } else {
        next();
        node();
      }
    }
  }

  void dict(const Node& node) {
    text_ += '{';
    each_child(node, [&](std::size_t i) {
      value(first_key(node) + i);
      text_ += ": ";
    });
    text_ += '}';
  }

  void fields(const Node& node) {
    const std::vector<Ref>& names = node.info->child_names;
    text_ += name(node) + '(';
    each_child(node, [&](std::size_t i) {
      if (i < names.size()) text_ += exact_text(names[i].get()) + '=';
    });
    const std::vector<Ref>& statics = node.info->static_names;
    for (std::size_t i = 0; i < statics.size() && node.kind != Kind::kNamedTuple; ++i) {
      if (i + node.arity > 0) text_ += ", ";
      text_ += exact_text(statics[i].get()) + '=';
      value(node.first_static + i);
    }
    text_ += ')';
  }

  const TreeSpec& spec_;
  std::size_t at_ = 0;
  std::string text_;
};

}  // namespace

std::string tree_text(const TreeSpec& spec) { return Printer(spec).print(); }

}  // namespace partax
