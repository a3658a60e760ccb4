#include "weft/comm/mpi_link.h"

#include <algorithm>
#include <mutex>

#include "weft/base/error.h"
#include "weft/comm/group.h"

namespace weft {
namespace {

std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, size_t(length)};
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw CommError(fmt::format("{}: {}", what, error_text(code)));
}

/// Calls part(offset, count) for each message that `bytes` bytes travel in, at least one.
template <class Part>
void in_parts(int64_t bytes, const Part& part) {
  int64_t done = 0;
  do {
    const int64_t count = std::min(bytes - done, MpiLink::max_message());
    part(done, int(count));
    done += count;
  } while (done < bytes);
}

}  // namespace

int64_t& MpiLink::max_message() {
  static int64_t bytes = int64_t{1} << 30;
  return bytes;
}

void MpiLink::init() {
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    fail("this MPI library does not let several threads of a process communicate: use Open MPI 4.1 or newer");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

void MpiLink::finalize() {
  const std::lock_guard lock(mpi_mutex());
  int joined = 0;
  MPI_Initialized(&joined);
  if (joined) MPI_Finalize();
}

std::string MpiLink::version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, size_t(length));
  return whole.substr(0, whole.find_first_of(",\n"));  // the rest tells how it was built
}

int MpiLink::world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int MpiLink::world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

uint64_t MpiLink::first_ranks(uint64_t number) {
  const std::lock_guard lock(mpi_mutex());
  check(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return number;
}

MpiLink::MpiLink(const std::vector<int64_t>& ranks) : ranks_(ranks) {
  const std::lock_guard lock(mpi_mutex());
  const std::vector<int> members(ranks.begin(), ranks.end());
  MPI_Group world, group;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, int(members.size()), members.data(), &group), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, group, /*tag=*/0, &comm_), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiLink::~MpiLink() {
  const std::lock_guard lock(mpi_mutex());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm_);
}

void MpiLink::send(const void* data, int64_t bytes, int peer, int tag, std::vector<Message>* messages) {
  const std::lock_guard lock(mpi_mutex());
  in_parts(bytes, [&](int64_t offset, int count) {
    Message& message = messages->emplace_back(MPI_REQUEST_NULL, -1, ranks_[size_t(peer)]);
    check(MPI_Isend(static_cast<const std::byte*>(data) + offset, count, MPI_BYTE, peer, tag, comm_,
                    &message.request),
          "MPI_Isend");
  });
}

void MpiLink::receive(void* data, int64_t bytes, int peer, int tag, std::vector<Message>* messages) {
  const std::lock_guard lock(mpi_mutex());
  in_parts(bytes, [&](int64_t offset, int count) {
    Message& message = messages->emplace_back(MPI_REQUEST_NULL, count, ranks_[size_t(peer)]);
    check(MPI_Irecv(static_cast<std::byte*>(data) + offset, count, MPI_BYTE, peer, tag, comm_,
                    &message.request),
          "MPI_Irecv");
  });
}

bool MpiLink::test(std::vector<Message>* messages) {
  const std::lock_guard lock(mpi_mutex());
  while (!messages->empty()) {
    Message& message = messages->back();
    int done = 0, received = 0;
    MPI_Status status;
    const int code = MPI_Test(&message.request, &done, &status);
    if (code != MPI_SUCCESS) {
      int kind = 0;
      MPI_Error_class(code, &kind);
      if (kind == MPI_ERR_TRUNCATE)
        throw CommError(fmt::format("rank {} sent more than the {} bytes that were expected", message.peer,
                                    message.expected));
      throw CommError(fmt::format("a message {} rank {} failed: {}", message.expected < 0 ? "to" : "from",
                                  message.peer, error_text(code)));
    }
    if (!done) return false;
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (message.expected >= 0 && received != message.expected)
      throw CommError(fmt::format("rank {} sent {} bytes where {} were expected", message.peer, received,
                                  message.expected));
    messages->pop_back();
  }
  return true;
}

}  // namespace weft
