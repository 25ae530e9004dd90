// SHA-256 as in FIPS 180-4. It is written here because it is short, and machines with a GPU often have no OpenSSL headers.
#include "core/hash.h"

#include "core/error.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace palimpsest {
namespace {

constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u};

}  // namespace

void Sha256::compress(const std::uint8_t* block) {
    std::array<std::uint32_t, 64> w;
    for (std::size_t t = 0; t < 16; ++t) {
        w[t] = std::uint32_t{block[4 * t]} << 24 | std::uint32_t{block[4 * t + 1]} << 16 | std::uint32_t{block[4 * t + 2]} << 8 |
               std::uint32_t{block[4 * t + 3]};
    }
    for (std::size_t t = 16; t < 64; ++t) {
        const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
        const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t t = 0; t < 64; ++t) {
        const std::uint32_t t1 =
            h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
        const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

Sha256& Sha256::update(const void* data, std::size_t size) {
    auto bytes = static_cast<const std::uint8_t*>(data);
    while (size > 0) {
        const std::size_t filled = bytes_ % 64, taken = std::min(size, 64 - filled);
        std::memcpy(block_.data() + filled, bytes, taken);
        bytes_ += taken;
        bytes += taken;
        size -= taken;
        if (filled + taken == 64) compress(block_.data());
    }
    return *this;
}

std::array<std::uint8_t, 32> Sha256::digest() const {
    Sha256 last = *this;  // the padding goes into a copy, so that more bytes may follow
    std::array<std::uint8_t, 72> padding = {0x80};
    const std::size_t zeros = (119 - bytes_ % 64) % 64;
    for (std::size_t i = 0; i < 8; ++i) padding[1 + zeros + i] = static_cast<std::uint8_t>((bytes_ * 8) >> (56 - 8 * i));
    last.update(padding.data(), zeros + 9);
    std::array<std::uint8_t, 32> result;
    for (std::size_t i = 0; i < 32; ++i) result[i] = static_cast<std::uint8_t>(last.state_[i / 4] >> (24 - 8 * (i % 4)));
    return result;
}

std::string Sha256::hex() const {
    const auto bytes = digest();
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string sha256_hex(std::string_view text) { return Sha256().update(text).hex(); }

std::string sha256_file(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
    if (!file) fail(ExitCode::usage, "cannot read '{}': {}", path, std::strerror(errno));
    Sha256 hash;
    std::vector<char> buffer(1 << 16);
    while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), file.get())) hash.update(buffer.data(), size);
    if (std::ferror(file.get()) != 0) fail(ExitCode::usage, "cannot read '{}': {}", path, std::strerror(errno));
    return hash.hex();
}

std::uint64_t fnv1a(const void* data, std::size_t size, std::uint64_t hash) {
    const auto bytes = static_cast<const std::uint8_t*>(data);
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash;
}

std::uint64_t fnv1a(std::string_view text, std::uint64_t hash) {
    return fnv1a(static_cast<const void*>(text.data()), text.size(), hash);
}

}  // namespace palimpsest
