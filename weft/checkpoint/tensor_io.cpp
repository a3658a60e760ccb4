#include "weft/checkpoint/tensor_io.h"

#include <array>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr std::array<std::pair<at::ScalarType, const char*>, 6> kDtypes = {{{at::kDouble, "F64"},
                                                                            {at::kFloat, "F32"},
                                                                            {at::kHalf, "F16"},
                                                                            {at::kBFloat16, "BF16"},
                                                                            {at::kLong, "I64"},
                                                                            {at::kInt, "I32"}}};

}  // namespace

std::string safetensors_dtype(at::ScalarType type) {
  for (const auto& [known, name] : kDtypes)
    if (known == type) return name;
  WEFT_ASSERT(false, "no safetensors name for {}", at::toString(type));
}

at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo& info = file.info(name);
  const auto bytes = file.data(name);
  for (const auto& [type, dtype] : kDtypes) {
    if (info.dtype != dtype) continue;
    // The format does not promise alignment.
    if (reinterpret_cast<uintptr_t>(bytes.data()) % dtype_size(dtype) == 0)
      return at::from_blob(const_cast<std::byte*>(bytes.data()), info.shape, type);
    at::Tensor copy = at::empty(info.shape, type);
    std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
    return copy;
  }
  fail("{}: tensor {} is {}, which is not supported here", file.path(), name, info.dtype);
}

TensorToWrite tensor_to_write(const std::string& name, const at::Tensor& tensor) {
  WEFT_ASSERT(tensor.is_contiguous() && tensor.is_cpu(), "{} must be contiguous on the CPU", name);
  return {name,
          safetensors_dtype(tensor.scalar_type()),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

}  // namespace weft
