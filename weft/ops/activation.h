// The gate of a gated MLP (Shazeer 2020): SwiGLU, and GeGLU with the tanh form of GELU.
#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

enum class Gate { silu, gelu_tanh };

/// f(gate) * up. gate_up [tokens, 2 ffn_dim], the gate's half first -> [tokens, ffn_dim].
at::Tensor gated(const at::Tensor& gate_up, Gate gate);

}  // namespace weft
