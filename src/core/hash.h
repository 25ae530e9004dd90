// Hashes: SHA-256 for what must not collide (run ids, file identity), FNV-1a for fingerprints of data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace palimpsest {

class Sha256 {
public:
    Sha256& update(const void* data, std::size_t size);
    Sha256& update(std::string_view text) { return update(text.data(), text.size()); }
    std::array<std::uint8_t, 32> digest() const;  // of all bytes so far; more may follow
    std::string hex() const;

private:
    void compress(const std::uint8_t* block);

    std::array<std::uint32_t, 8> state_ = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                           0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    std::array<std::uint8_t, 64> block_{};
    std::uint64_t bytes_ = 0;
};

std::string sha256_hex(std::string_view text);
std::string sha256_file(const std::string& path);  // reads in pieces; throws an Error with path and reason where reading fails

constexpr std::uint64_t fnv1a_start = 0xcbf29ce484222325ull;
std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv1a_start);
// The hash has no default here, since fnv1a("text", hash) would take the hash for a size.
std::uint64_t fnv1a(const void* data, std::size_t size, std::uint64_t hash);

}  // namespace palimpsest
