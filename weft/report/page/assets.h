// The report's style sheet and script, page.css and page.js, as text in the binary.
#pragma once

namespace weft {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace weft
