// Between ATen tensors and safetensors files.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "weft/base/safetensors.h"

namespace weft {

/// The format's name of a dtype: "F32" for at::kFloat.
std::string safetensors_dtype(at::ScalarType type);

/// Tensor `name` of `file` in its own dtype. It may be a view of the mapping: only to be read, and only as
/// long as `file` lives. Throws Error if there is none, or for a dtype that ATen cannot compute with here.
at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name);

/// `tensor` (contiguous, on the CPU), which must live until it is written.
TensorToWrite tensor_to_write(const std::string& name, const at::Tensor& tensor);

}  // namespace weft
