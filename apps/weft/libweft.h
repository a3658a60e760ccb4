// Loads libweft, the part of Weft that computes, only once a command needs it: it takes libtorch with it,
// which costs a third of a second.
#pragma once

#include "weft/entry.h"

namespace weft {

/// Sets the environment that must stand before libtorch loads (what the user has set stays), loads libweft
/// from beside the executable or from ../lib, and returns a function of entry.h. Throws Error with the
/// remedy.
void* find_in_libweft(const char* function);

/// libweft_function<decltype(weft_train)>("weft_train")(config)
template <class Function>
Function* libweft_function(const char* name) {
  return reinterpret_cast<Function*>(find_in_libweft(name));
}

}  // namespace weft
