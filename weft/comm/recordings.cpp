#include "weft/comm/recordings.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>

#include "weft/base/error.h"

namespace weft {
namespace {

using Ranks = std::vector<int64_t>;

// ---------------------------------------------------------------- reading

constexpr uint32_t kMostRanks = 1 << 20, kMostGroups = 1 << 16, kMostMembers = 1 << 26,
                   kMostRecords = 1 << 24;

/// Copies out items of a part that begins at `offset`.
template <class T>
std::vector<T> items(std::string_view bytes, uint64_t offset, uint64_t count) {
  std::vector<T> found(count);
  if (count > 0) std::memcpy(found.data(), bytes.data() + offset, count * sizeof(T));
  return found;
}

template <size_t size>
bool is_text(const char (&field)[size]) {
  const std::string text = field_text(field);
  return text.size() < size && std::ranges::all_of(text, [](char c) { return ' ' <= c && c <= '~'; });
}

RingHeader parse_header(std::string_view bytes, const std::string& name) {
  RingHeader header;
  if (bytes.size() < sizeof kRingMagic || std::memcmp(bytes.data(), kRingMagic, sizeof kRingMagic) != 0)
    fail("{} is not a recording of a rank's communication: it does not begin with WEFTRING", name);
  if (bytes.size() < sizeof header)
    fail("{} is cut off: {} bytes, of which the header alone has {}", name, bytes.size(), sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != kRingVersion)
    fail("{} is of version {}, and this weft reads version {}", name, header.version, kRingVersion);
  if (header.max_groups > kMostGroups || header.max_members > kMostMembers ||
      header.max_records > kMostRecords || header.max_records == 0 || header.groups > header.max_groups ||
      header.members > header.max_members || header.ranks > kMostRanks || header.rank >= header.ranks ||
      !is_text(header.host))
    fail("{} is damaged: its header makes no sense", name);
  if (bytes.size() != ring_bytes(header))
    fail("{} is {}: {} bytes where its header says {}", name,
         bytes.size() < ring_bytes(header) ? "cut off" : "damaged", bytes.size(), ring_bytes(header));
  return header;
}

bool makes_sense(const OpRecord& record, const Recording& recording) {
  return record.group < recording.groups.size() && is_text(record.kind) && is_text(record.dtype) &&
         is_text(record.reduction);
}

}  // namespace

Recording parse_recording(std::string_view bytes, const std::string& name) {
  Recording recording;
  const RingHeader& header = recording.header = parse_header(bytes, name);
  uint64_t offset = sizeof header;
  const auto groups = items<RingGroup>(bytes, offset, header.groups);
  offset += header.max_groups * sizeof(RingGroup);
  const auto members = items<uint32_t>(bytes, offset, header.members);
  offset += header.max_members * sizeof(uint32_t);
  for (const RingGroup& group : groups) {
    if (!is_text(group.name) || group.first > members.size() || group.size > members.size() - group.first)
      fail("{} is damaged: group {} of its table makes no sense", name, recording.groups.size());
    const auto first = members.begin() + group.first;
    recording.groups.push_back({field_text(group.name), Ranks(first, first + group.size), group.issued});
  }
  for (OpRecord& record : items<OpRecord>(bytes, offset, header.max_records)) {
    // Records are read after the header: one that was written in between is not the header's.
    if (record.number == 0 || record.number != record.check || record.number > header.written) continue;
    if (!makes_sense(record, recording)) fail("{} is damaged: record {} makes no sense", name, record.number);
    recording.records.push_back(record);
  }
  std::ranges::sort(recording.records, {}, &OpRecord::number);
  return recording;
}

std::vector<Recording> read_recordings(Env& env, const std::string& dir) {
  for (const std::string& place : {dir, dir + "/comm"}) {
    std::vector<Recording> recordings;
    for (const std::string& name : env.list(place)) {
      const std::string path = place + "/" + name;
      if (name.ends_with(".ring")) recordings.push_back(parse_recording(env.read(path), path));
    }
    if (recordings.empty()) continue;
    const auto started = [](const Recording& recording) { return recording.header.started; };
    const uint64_t run = std::ranges::max(recordings, {}, started).header.run;
    std::erase_if(recordings, [&](const Recording& recording) { return recording.header.run != run; });
    std::ranges::sort(recordings, {}, &Recording::rank);
    return recordings;
  }
  fail(
      "there are no recordings (rank-00000.ring, …) in {} nor in {}/comm: a run of several ranks writes them",
      dir, dir);
}

// ---------------------------------------------------------------- comparing

namespace {

/// One group as one rank has seen it.
struct View {
  int64_t rank;
  uint64_t issued;
  std::vector<const OpRecord*> collectives;  // by sequence
  std::vector<const OpRecord*> messages;     // under way

  const OpRecord* at(uint64_t sequence) const {
    const auto found = std::ranges::lower_bound(collectives, sequence, {}, &OpRecord::sequence);
    return found == collectives.end() || (*found)->sequence != sequence ? nullptr : *found;
  }
  /// The first one that is not done; null: none.
  const OpRecord* under_way() const {
    const auto found = std::ranges::find(collectives, 0, &OpRecord::done);
    return found == collectives.end() ? nullptr : *found;
  }
};

class GroupComparison {
 public:
  GroupComparison(const std::vector<Recording>& recordings, std::string name, Ranks ranks, int64_t now)
      : name_(std::move(name)), ranks_(std::move(ranks)), now_(now) {
    for (const Recording& recording : recordings) {
      const auto group = std::ranges::find_if(recording.groups, [&](const Recording::Group& listed) {
        return listed.name == name_ && listed.ranks == ranks_;
      });
      if (group != recording.groups.end())
        views_.push_back(view(recording, uint32_t(group - recording.groups.begin())));
    }
  }

  std::string text() const {
    if (views_.empty()) return "";
    std::string text = fmt::format("{}: {}\n", name_, ranks_text(ranks_));
    for (const State& state : states())
      text += fmt::format("  {:<16} {}{}\n", ranks_text(state.ranks), state.what,
                          state.since == 0  ? ""
                          : state.under_way ? ", under way for " + age(state.since)
                                            : fmt::format(", done {} ago", age(state.since)));
    for (const std::string& finding : findings()) text += fmt::format("  -> {}\n", finding);
    return text;
  }

 private:
  static View view(const Recording& recording, uint32_t group) {
    View view{recording.rank(), recording.groups[group].issued, {}, {}};
    for (const OpRecord& record : recording.records) {
      if (record.group != group) continue;
      if (record.sequence > 0)
        view.collectives.push_back(&record);
      else if (record.done == 0)
        view.messages.push_back(&record);
    }
    std::ranges::stable_sort(view.collectives, {}, &OpRecord::sequence);
    return view;
  }

  std::string age(int64_t time) const {
    return fmt::format("{:.1f} s", 1e-9 * (double(now_) - double(time)));
  }

  std::string text_of(const OpRecord& record) const {
    return fmt::format("#{} {}", record.sequence, describe(record, ranks_));
  }

  /// What a rank, or several, did last.
  struct State {
    std::string what;
    bool under_way;
    int64_t since;  // the longest one's
    Ranks ranks;
    bool operator==(const State& other) const { return what == other.what && under_way == other.under_way; }
  };

  std::vector<State> states() const {
    std::vector<State> states;
    const auto add = [&](State state) {
      const auto found = std::ranges::find(states, state);
      if (found == states.end()) return states.push_back(std::move(state));
      found->since = std::min(found->since, state.since);
      found->ranks.push_back(state.ranks.front());
    };
    for (const View& view : views_) {
      const OpRecord* const last = view.collectives.empty() ? nullptr : view.collectives.back();
      const OpRecord* const waits = view.under_way();
      if (waits && waits != last) add({text_of(*waits), true, waits->issued, {view.rank}});
      if (last) add({text_of(*last), last->done == 0, last->done ? last->done : last->issued, {view.rank}});
      if (!last) add({"no collective yet", false, 0, {view.rank}});
    }
    for (const int64_t rank : ranks_)
      if (std::ranges::find(views_, rank, &View::rank) == views_.end())
        add({"no recording", false, 0, {rank}});
    return states;
  }

  std::vector<std::string> findings() const {
    std::vector<std::string> findings;
    if (const std::string text = first_disagreement(); !text.empty()) findings.push_back(text);
    const uint64_t most = std::ranges::max(views_, {}, &View::issued).issued;
    Ranks waiting;
    uint64_t first = UINT64_MAX;
    for (const View& view : views_)
      if (const OpRecord* record = view.under_way()) {
        waiting.push_back(view.rank);
        first = std::min(first, record->sequence);
      }
    for (const View& view : views_)
      if (view.issued < most) findings.push_back(who_is_behind(view, waiting));
    if (!waiting.empty() &&
        std::ranges::all_of(views_, [&](const View& view) { return view.issued >= first; }))
      findings.push_back(
          fmt::format("all have issued #{}; it is under way on {}", first, ranks_text(waiting)));
    for (const View& view : views_)
      for (const OpRecord* message : view.messages) findings.push_back(pending_message(view, *message));
    return findings;
  }

  /// Of the first operation that not all ranks issued alike: what follows may be its consequence.
  std::string first_disagreement() const {
    std::map<uint64_t, std::vector<std::pair<int64_t, OpRecord>>> by_sequence;
    for (const View& view : views_)
      for (const OpRecord* record : view.collectives)
        by_sequence[record->sequence].emplace_back(view.rank, *record);
    for (const auto& [sequence, records] : by_sequence)
      if (const std::string text = disagreement(records, ranks_); !text.empty())
        return fmt::format("as #{}, {}", sequence, text);
    return "";
  }

  std::string who_is_behind(const View& behind, Ranks waiting) const {
    std::erase(waiting, behind.rank);
    std::string next = fmt::format("#{}", behind.issued + 1);
    for (const View& view : views_)
      if (const OpRecord* record = view.at(behind.issued + 1)) next = text_of(*record);
    std::string text = fmt::format("rank {} has not issued {}", behind.rank, next);
    if (!waiting.empty())
      text += fmt::format(", for which {} {}", ranks_text(waiting), waiting.size() == 1 ? "waits" : "wait");
    if (const OpRecord* last = behind.at(behind.issued))
      text += fmt::format(
          "; its last was {}, {}", text_of(*last),
          last->done ? fmt::format("done {} ago", age(last->done)) : "under way for " + age(last->issued));
    return text;
  }

  std::string pending_message(const View& view, const OpRecord& message) const {
    const bool sends = field_text(message.kind) == "send";
    std::string text =
        fmt::format("rank {} waits in {} for {}", view.rank, describe(message, ranks_), age(message.issued));
    if (message.peer < 0 || size_t(message.peer) >= ranks_.size()) return text;
    const int64_t peer = ranks_[size_t(message.peer)];
    const auto other = std::ranges::find(views_, peer, &View::rank);
    const bool met =
        other != views_.end() && std::ranges::any_of(other->messages, [&](const OpRecord* theirs) {
          return theirs->tag == message.tag && size_t(theirs->peer) < ranks_.size() &&
                 ranks_[size_t(theirs->peer)] == view.rank && (field_text(theirs->kind) == "send") != sends;
        });
    if (!met) text += fmt::format("; rank {} has no such {} under way", peer, sends ? "recv" : "send");
    return text;
  }

  std::string name_;
  Ranks ranks_;
  int64_t now_;
  std::vector<View> views_;
};

/// The last sign of life of any rank.
int64_t last_sign(const std::vector<Recording>& recordings) {
  int64_t last = 0;
  for (const Recording& recording : recordings) {
    last = std::max(last, recording.header.alive);
    for (const OpRecord& record : recording.records) last = std::max(last, record.done);
  }
  return last;
}

/// Ranks that have given no sign for longer than a waiting or busy rank would need.
std::string silent_ranks(const std::vector<Recording>& recordings, const Ranks& among, int64_t now) {
  constexpr double kSilence = 3;  // seconds
  std::string text;
  for (const Recording& recording : recordings) {
    const double silence = 1e-9 * (double(now) - double(recording.header.alive));
    if (silence < kSilence || std::ranges::find(among, recording.rank()) == among.end()) continue;
    text += fmt::format("rank {} (process {} on {}) has given no sign of life for {:.1f} s\n",
                        recording.rank(), recording.header.pid, field_text(recording.header.host), silence);
  }
  return text;
}

std::string local_time(int64_t nanoseconds) {
  const std::time_t seconds = std::time_t(nanoseconds / 1'000'000'000);
  std::tm parts{};
  if (!localtime_r(&seconds, &parts)) return "at no time";
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

}  // namespace

std::string compare_recordings(const std::vector<Recording>& recordings) {
  const int64_t now = last_sign(recordings);
  Ranks all, missing;
  std::vector<std::pair<std::string, Ranks>> groups;
  for (const Recording& recording : recordings) {
    all.push_back(recording.rank());
    for (const Recording::Group& group : recording.groups)
      if (const auto key = std::pair(group.name, group.ranks); std::ranges::find(groups, key) == groups.end())
        groups.push_back(key);
  }
  for (int64_t rank = 0; rank < recordings.front().header.ranks; ++rank)
    if (std::ranges::find(all, rank) == all.end()) missing.push_back(rank);
  std::string text = fmt::format("a job of {} ranks, started {}; last sign of life of any rank {}\n",
                                 recordings.front().header.ranks,
                                 local_time(recordings.front().header.started), local_time(now));
  if (!missing.empty()) text += fmt::format("no recording of {}\n", ranks_text(missing));
  text += silent_ranks(recordings, all, now);
  for (const auto& [name, ranks] : groups)
    text += fmt::format("\n{}", GroupComparison(recordings, name, ranks, now).text());
  return text;
}

std::string compare_recordings(const std::vector<Recording>& recordings, const std::string& group,
                               const std::vector<int64_t>& ranks) {
  const int64_t now = last_sign(recordings);
  return GroupComparison(recordings, group, ranks, now).text() + silent_ranks(recordings, ranks, now);
}

}  // namespace weft
