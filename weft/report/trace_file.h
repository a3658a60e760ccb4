// Spans as files and text: RUN/op_times.json, RUN/trace.json and the table of the top ops. docs/formats.md
// has the formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/trace.h"

namespace weft {

/// Totals of `steps` steps; its "seconds" is their sum.
std::string op_times_json(int64_t steps, const OpTotals& totals);

/// A trace that Perfetto and chrome://tracing open. Times are counted from the first span's begin.
std::string chrome_trace(const std::vector<SpanEvent>& spans, const std::string& process_name);

/// The `most` ops that took most of the spans' time, and what they achieved; FLOP/s are compared with
/// `peak_flops`, those of a large GEMM.
std::string top_ops_table(const std::vector<SpanEvent>& spans, double peak_flops, size_t most = 15);

}  // namespace weft
