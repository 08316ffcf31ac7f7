"""Entries of classes that are not written down: code that reads them is not proven, or they follow from the others."""

# What the statement of a class, and decorators of libraries, write about it.
ABOUT_CLASS = {
    *("__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__classdictcell__", "__orig_bases__", "__type_params__", "__firstlineno__", "__static_attributes__"),
    *("__doc__", "__qualname__"),
    "_abc_impl",  # out of reach, but all guards count what was registered with abstract classes
}
# What an enumeration keeps of its members, beside each member itself, and what finds them by name and by value.
OF_ENUM = {
    *("_generate_next_value_", "_hashable_values_", "_member_type_", "_new_member_"),
    *("_unhashable_values_", "_unhashable_values_map_", "_use_args_", "_value_repr_"),
}
