// The message of the Error that a call throws.
#pragma once

#include <string>

#include "weft/base/error.h"

namespace weft {

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace weft
