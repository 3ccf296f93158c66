#include "tests/src/program/layer_writings.hpp"

#include <fmt/format.h>

namespace kiln::testing {
namespace {

using Pieces = std::map<std::string, std::string>;

const Pieces kBase = {
    {"norm1", "h = bf16(x * rsqrt(mean(x * x, -1) + 1e-5) * norm1);"},
    {"qkv", "y = reshape(sum(wqkv * h[:, None], -1), -1, {N});"},
    {"split",
     "q0 = reshape(y[:, :{Q}], {B}, {H}, {D}); k0 = reshape(y[:, {Q}:{E}], {B}, {K}, {D}); "
     "v = reshape(y[:, {E}:], {B}, {K}, {D});"},
    {"rope",
     "qp = reshape(q0, {B}, {H}, -1, 2); kp = reshape(k0, {B}, {K}, -1, 2);"
     "q = reshape(stack(-1, qp[..., 0] * c - qp[..., 1] * s, qp[..., 0] * s + qp[..., 1] * c), "
     "{B}, {H}, {D});"
     "k = reshape(stack(-1, kp[..., 0] * c - kp[..., 1] * s, kp[..., 0] * s + kp[..., 1] * c), "
     "{B}, {K}, {D});"},
    {"put", "ks = put(kcache, rows, k); vs = put(vcache, rows, v);"},
    {"attend",
     "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
     "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
     "weights = softmax(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1), -2);"
     "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"},
    {"o", "r = x + reshape(sum(wo * mixed[:, None], -1), -1, {W});"},
    {"norm2", "h2 = bf16(r * rsqrt(mean(r * r, -1) + 1e-5) * norm2);"},
    {"gate_up", "gu = reshape(sum(w13 * h2[:, None], -1), -1, {F2});"},
    {"gated", "gated = bf16(silu(gu[:, :{F}]) * gu[:, {F}:]);"},
    {"down", "z = r + reshape(sum(w2 * gated[:, None], -1), -1, {W});"},
    {"out", "z, ks, vs"},
};

// Weights of 4 bits.
Pieces quantised(const std::string& weight, Pieces more = {}) {
  const auto product = [&](const std::string& w, const std::string& x, const std::string& n,
                           const std::string& columns) {
    std::string text = weight;
    const auto replace = [&](const std::string& key, const std::string& by) {
      for (std::size_t at; (at = text.find(key)) != std::string::npos;)
        text.replace(at, key.size(), by);
    };
    replace("%w", "u" + w);
    replace("%x", x);
    replace("%n", n);
    replace("%c", columns);
    return text;
  };
  Pieces pieces = {
      {"qkv", "y = " + product("wqkv", "h", "{N}", "{W}") + ";"},
      {"o", "r = x + " + product("wo", "mixed", "{W}", "{W}") + ";"},
      {"gate_up", "gu = " + product("w13", "h2", "{F2}", "{W}") + ";"},
      {"down", "z = r + " + product("w2", "gated", "{W}", "{F}") + ";"},
  };
  for (auto& [key, piece] : more) pieces[key] = piece;
  return pieces;
}

}  // namespace

const std::vector<LayerWriting>& layer_writings() {
  static const std::vector<LayerWriting> all = {
      {"base", {}},
      {"rotate half: concat of slices",
       {{"rope",
         "q = q0 * cos2 + concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2;"
         "k = k0 * cos2 + concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2;"}}},
      {"halves, concat of rotated",
       {{"rope",
         "qa = q0[..., :{h}]; qb = q0[..., {h}:]; ka = k0[..., :{h}]; kb = k0[..., {h}:];"
         "q = concat(-1, qa * c - qb * s, qb * c + qa * s);"
         "k = concat(-1, ka * c - kb * s, kb * c + ka * s);"}}},
      {"halves, stack",
       {{"rope",
         "qp = reshape(q0, {B}, {H}, 2, {h}); kp = reshape(k0, {B}, {K}, 2, {h});"
         "q = reshape(stack(-2, qp[:, :, 0] * c - qp[:, :, 1] * s, qp[:, :, 1] * c + qp[:, :, 0] * "
         "s), {B}, {H}, {D});"
         "k = reshape(stack(-2, kp[:, :, 0] * c - kp[:, :, 1] * s, kp[:, :, 1] * c + kp[:, :, 0] * "
         "s), {B}, {K}, {D});"}}},
      {"strided pairs",
       {{"rope",
         "qa = q0[..., 0::2]; qb = q0[..., 1::2]; ka = k0[..., 0::2]; kb = k0[..., 1::2];"
         "q = reshape(stack(-1, qa * c - qb * s, qa * s + qb * c), {B}, {H}, {D});"
         "k = reshape(stack(-1, ka * c - kb * s, ka * s + kb * c), {B}, {K}, {D});"}}},
      {"swapped halves times signed sines",
       {{"rope",
         "qs = reshape(reshape(q0, {B}, {H}, 2, {h})[:, :, ::-1], {B}, {H}, {D});"
         "kx = reshape(reshape(k0, {B}, {K}, 2, {h})[:, :, ::-1], {B}, {K}, {D});"
         "q = q0 * cos2 + qs * sin2; k = k0 * cos2 + kx * sin2;"}}},
      {"q and k turned together, sliced after",
       {{"split", "yh = reshape(y, {B}, {A}, {D}); qk = yh[:, :{HK}]; v = yh[:, {HK}:];"},
        {"rope",
         "qa = qk[..., :{h}]; qb = qk[..., {h}:];"
         "t = concat(-1, qa * c - qb * s, qb * c + qa * s);"
         "q = t[:, :{H}]; k = t[:, {H}:];"}}},
      {"q and k turned together by rotate half",
       {{"split", "yh = reshape(y, {B}, {A}, {D}); qk = yh[:, :{HK}]; v = yh[:, {HK}:];"},
        {"rope",
         "t = qk * cos2 + concat(-1, -qk[..., {h}:], qk[..., :{h}]) * sin2;"
         "q = t[:, :{H}]; k = t[:, {H}:];"}}},
      {"product rounded, then sliced",
       {{"qkv", "y = bf16(reshape(sum(wqkv * h[:, None], -1), -1, {N}));"}}},
      {"product rounded, reshaped, sliced, rotate half, rounded",
       {{"qkv", "y = bf16(reshape(sum(wqkv * h[:, None], -1), -1, {N}));"},
        {"split",
         "yh = reshape(y, {B}, {A}, {D}); q0 = yh[:, :{H}]; k0 = yh[:, {H}:{HK}]; v = yh[:, "
         "{HK}:];"},
        {"rope",
         "q = bf16(bf16(q0 * cos2) + bf16(concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2));"
         "k = bf16(bf16(k0 * cos2) + bf16(concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2));"}}},
      {"bias on the product, sliced after",
       {{"qkv", "y = reshape(sum(wqkv * h[:, None], -1), -1, {N}) + bqkv;"}}},
      {"bias on the product, rounded",
       {{"qkv", "y = bf16(reshape(sum(wqkv * h[:, None], -1), -1, {N}) + bqkv);"}}},
      {"kv put together, halves",
       {{"split", "yh = reshape(y, {B}, {A}, {D}); qk = yh[:, :{HK}]; v = yh[:, {HK}:];"},
        {"rope",
         "qa = qk[..., :{h}]; qb = qk[..., {h}:];"
         "t = concat(-1, qa * c - qb * s, qb * c + qa * s);"
         "q = t[:, :{H}]; k = t[:, {H}:];"},
        {"put", "kv = put(cache, rows, stack(1, k, v));"},
        {"attend",
         "keys = swapaxes(reshape(kv, {B}, {P}, 2, {K}, {D})[:, :, 0], 1, 2)[:, :, None, :end];"
         "values = swapaxes(reshape(kv, {B}, {P}, 2, {K}, {D})[:, :, 1], 1, 2)[:, :, None, :end];"
         "weights = softmax(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1), -2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"},
        {"out", "z, kv"}}},
      {"rows computed",
       {{"put",
         "at = iota(0) * {P} + position; ks = put(kcache, at, k); vs = put(vcache, at, v);"}}},
      {"rows of heads computed",
       {{"put",
         "at = (iota(0) * {P} + position)[:, None] * {K} + headrow;"
         "ks = put(kflat, at, k); vs = put(vflat, at, v);"}}},
      {"position in the cache by heads",
       {{"put",
         "ks = put(kh, position, swapaxes(k, 0, 1), 1); vs = put(vh, position, swapaxes(v, 0, 1), "
         "1);"},
        {"attend",
         "keys = ks[None, :, None, :end1]; values = vs[None, :, None, :end1];"
         "weights = softmax(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1), -2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"scale in q, exponentials by hand",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "qs = reshape(q * 0.088, {B}, {K}, {G}, 1, {D});"
         "scores = sum(qs * keys, -1); e = exp(scores - max(scores, -2));"
         "mixed = bf16(reshape(sum(e * values, -2) / sum(e, -2), {B}, {W}));"}}},
      {"weights divided by their sum",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "scores = sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1) / 11.3; e = exp(scores - "
         "max(scores, -2));"
         "mixed = bf16(reshape(sum(e / sum(e, -2) * values, -2), {B}, {W}));"}}},
      {"masked by where",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "scores = 0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1);"
         "weights = softmax(where(iota(-2) < end, scores, -inf), -2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"masked by adding",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "weights = softmax(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1) + mask, -2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"mask by the index, added",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "bias = where(iota(-2) < end, 0.0, -inf);"
         "weights = softmax(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1) + bias, -2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"keys along the last axis",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None];"
         "scores = squeeze(sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1), -1);"
         "weights = softmax(where(iota(-1) < end4, 0.088 * scores, -inf), -1);"
         "mixed = bf16(reshape(sum(weights[..., None] * values, -2), {B}, {W}));"}}},
      {"heads repeated by taking",
       {{"attend",
         "keys = take(swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2), headof, 1);"
         "values = take(swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2), headof, 1);"
         "weights = softmax(where(iota(-2) < end4, 0.088 * sum(q[:, :, None] * keys, -1), -inf), "
         "-2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"heads repeated by stacking",
       {{"attend",
         "kt = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2); vt = swapaxes(reshape(vs, {B}, "
         "{P}, {K}, {D}), 1, 2);"
         "keys = reshape(stack(2, kt, kt, kt, kt), {B}, {H}, {P}, {D});"
         "values = reshape(stack(2, vt, vt, vt, vt), {B}, {H}, {P}, {D});"
         "weights = softmax(where(iota(-2) < end4, 0.088 * sum(q[:, :, None] * keys, -1), -inf), "
         "-2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"weights rounded",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "weights = bf16(softmax(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1), -2));"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}},
       9},
      {"scores rounded",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "weights = softmax(f32(bf16(0.088 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1))), "
         "-2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
      {"norm in f32, weight after the cast",
       {{"norm1", "x32 = f32(xb); h = bf16(x32 * rsqrt(mean(x32 * x32, -1) + 1e-5)) * norm1b;"},
        {"o", "r = xb + bf16(reshape(sum(wo * mixed[:, None], -1), -1, {W}));"},
        {"norm2", "r32 = f32(r); h2 = bf16(r32 * rsqrt(mean(r32 * r32, -1) + 1e-5)) * norm2b;"},
        {"down", "z = bf16(r + bf16(reshape(sum(w2 * gated[:, None], -1), -1, {W})));"}}},
      {"norm by a quotient",
       {{"norm1", "h = bf16(x / sqrt(sum(x ** 2, -1) / {W} + 1e-5) * norm1);"},
        {"norm2", "h2 = bf16(r / sqrt(sum(r ** 2, -1) / {W} + 1e-5) * norm2);"}}},
      {"rms_norm",
       {{"norm1", "h = bf16(rms_norm(x, norm1, 1e-5));"},
        {"norm2", "h2 = bf16(rms_norm(r, norm2, 1e-5));"}}},
      {"residual rounded",
       {{"o", "r = bf16(x + reshape(sum(wo * mixed[:, None], -1), -1, {W}));"},
        {"down", "z = bf16(r + reshape(sum(w2 * gated[:, None], -1), -1, {W}));"}}},
      {"silu by exp",
       {{"gated", "g = gu[:, :{F}]; gated = bf16(g / (1 + exp(-g)) * gu[:, {F}:]);"}}},
      {"silu by sigmoid",
       {{"gated",
         "g = reshape(gu, {B}, 2, {F}); gated = bf16(g[:, 0] * sigmoid(g[:, 0]) * g[:, 1]);"}}},
      {"gate and up rounded",
       {{"gate_up", "gu = bf16(reshape(sum(w13 * h2[:, None], -1), -1, {F2}));"},
        {"gated", "gated = bf16(bf16(silu(gu[:, :{F}])) * gu[:, {F}:]);"}}},
      {"gate and up interleaved", {{"gated", "gated = bf16(silu(gu[:, 0::2]) * gu[:, 1::2]);"}}},
      {"squeezed products",
       {{"qkv", "y = squeeze(sum(wqkv * h[:, None], -1), -1);"},
        {"o", "r = x + squeeze(sum(wo * mixed[:, None], -1), -1);"},
        {"gate_up", "gu = squeeze(sum(w13 * h2[:, None], -1), -1);"},
        {"down", "z = r + sum(w2 * gated[:, None], -1)[..., 0];"}}},
      {"4 bits", quantised("reshape(sum((%w * %w_scale + %w_bias) * reshape(%x, -1, 1, %c / 64, "
                           "64), -1, -2), -1, %n)")},
      {"4 bits, reshaped to a matrix",
       quantised(
           "reshape(sum(reshape(%w * %w_scale + %w_bias, %n, %c) * %x[:, None], -1), -1, %n)")},
      {"4 bits, zero points", quantised("reshape(sum((%w - %w_bias) * %w_scale * reshape(%x, -1, "
                                        "1, %c / 64, 64), -1, -2), -1, %n)")},
      {"4 bits, of bf16", quantised("reshape(sum(bf16(f16(%w) * %w_scale + %w_bias) * reshape(%x, "
                                    "-1, 1, %c / 64, 64), -1, -2), -1, %n)")},
      {"4 bits, sums of groups",
       quantised("reshape(sum(sum(%w * reshape(%x, -1, 1, %c / 64, 64), -1) * %w_scale + "
                 "sum(reshape(%x, -1, 1, %c / 64, 64), -1) * %w_bias, -2), -1, %n)")},
      {"4 bits, a matrix with scales beside it",
       quantised("reshape(sum(reshape(reshape(f%w, %n, %c / 64, 64) * s%w[..., None] + b%w[..., "
                 "None], %n, %c) * "
                 "%x[:, None], -1), -1, %n)")},
      {"4 bits, bf16, hf",
       quantised(
           "bf16(reshape(sum(reshape(%w * %w_scale + %w_bias, %n, %c) * %x[:, None], -1), -1, %n))",
           {{"norm1", "x32 = f32(xb); h = bf16(x32 * rsqrt(mean(x32 * x32, -1) + 1e-5)) * norm1b;"},
            {"split",
             "yh = reshape(y, {B}, {A}, {D}); q0 = yh[:, :{H}]; k0 = yh[:, {H}:{HK}]; v = yh[:, "
             "{HK}:];"},
            {"rope",
             "q = q0 * cos2b + concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2b;"
             "k = k0 * cos2b + concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2b;"},
            {"norm2",
             "r32 = f32(r); h2 = bf16(r32 * rsqrt(mean(r32 * r32, -1) + 1e-5)) * norm2b;"}})},
      {"pairs exchanged, times signed sines",
       {{"rope",
         "qs = reshape(reshape(q0, {B}, {H}, {h}, 2)[..., ::-1], {B}, {H}, {D});"
         "kx = reshape(reshape(k0, {B}, {K}, {h}, 2)[..., ::-1], {B}, {K}, {D});"
         "q = q0 * cos2 + qs * sin2; k = k0 * cos2 + kx * sin2;"}}},
      {"complex halves, angles taken from tables",
       {{"rope",
         "ct = take(costable, position)[:, None]; st = take(sintable, position)[:, None];"
         "qa = q0[..., :{h}]; qb = q0[..., {h}:]; ka = k0[..., :{h}]; kb = k0[..., {h}:];"
         "q = concat(-1, qa * ct - qb * st, qa * st + qb * ct);"
         "k = concat(-1, ka * ct - kb * st, ka * st + kb * ct);"}},
       8},
      {"heads normalised",
       {{"split",
         "yh = reshape(y, {B}, {A}, {D}); qn = f32(yh[:, :{H}]); kn = f32(yh[:, {H}:{HK}]);"
         "q0 = bf16(qn * rsqrt(mean(qn * qn, -1) + 1e-6)) * qnorm;"
         "k0 = bf16(kn * rsqrt(mean(kn * kn, -1) + 1e-6)) * knorm; v = yh[:, {HK}:];"},
        {"rope",
         "q = q0 * cos2b + concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2b;"
         "k = k0 * cos2b + concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2b;"}},
       9},
      {"heads normalised by rms_norm, halves rotated",
       {{"split",
         "q0 = rms_norm(reshape(y[:, :{Q}], {B}, {H}, {D}), qnorm, 1e-6); "
         "k0 = rms_norm(reshape(y[:, {Q}:{E}], {B}, {K}, {D}), knorm, 1e-6); "
         "v = reshape(y[:, {E}:], {B}, {K}, {D});"},
        {"rope",
         "qa = q0[..., :{h}]; qb = q0[..., {h}:]; ka = k0[..., :{h}]; kb = k0[..., {h}:];"
         "q = concat(-1, qa * c - qb * s, qb * c + qa * s);"
         "k = concat(-1, ka * c - kb * s, kb * c + ka * s);"}},
       9},
      {"heads normalised, weights from one, pairs rotated, keys scaled",
       {{"qkv", "y = bf16(reshape(sum(wqkv * h[:, None], -1), -1, {N}));"},
        {"split",
         "yh = reshape(y, {B}, {A}, {D}); qn = f32(yh[:, :{H}]); kn = f32(yh[:, {H}:{HK}]);"
         "q0 = qn * rsqrt(mean(qn * qn, -1) + 1e-6) * (1 + f32(qnorm));"
         "k0 = kn * rsqrt(mean(kn * kn, -1) + 1e-6) * (1 + f32(knorm)) * 0.5; v = yh[:, {HK}:];"}},
       9},
      {"heads normalised, no weights, halves rotated",
       {{"split",
         "yh = reshape(y, {B}, {A}, {D}); qn = yh[:, :{H}]; kn = yh[:, {H}:{HK}];"
         "q0 = qn * rsqrt(mean(qn * qn, -1) + 1e-6);"
         "k0 = kn * rsqrt(mean(kn * kn, -1) + 1e-6); v = yh[:, {HK}:];"},
        {"rope",
         "q = q0 * cos2 + concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2;"
         "k = k0 * cos2 + concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2;"}},
       9},
      {"own matrices, heads normalised",
       {{"qkv", ""},
        {"split",
         "q0 = rms_norm(reshape(sum(wq * h[:, None], -1), {B}, {H}, {D}), qnorm, 1e-6);"
         "k0 = rms_norm(reshape(sum(wk * h[:, None], -1), {B}, {K}, {D}), knorm, 1e-6);"
         "v = reshape(sum(wv * h[:, None], -1), {B}, {K}, {D});"},
        {"rope",
         "q = q0 * cos2 + concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2;"
         "k = k0 * cos2 + concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2;"}},
       11},
      {"own matrices of queries, keys and values, with biases",
       {{"qkv", ""},
        {"split",
         "q0 = reshape(sum(wq * h[:, None], -1) + bq, {B}, {H}, {D});"
         "k0 = reshape(sum(wk * h[:, None], -1) + bk, {B}, {K}, {D});"
         "v = reshape(sum(wv * h[:, None], -1) + bv, {B}, {K}, {D});"},
        {"rope",
         "q = q0 * cos2 + concat(-1, -q0[..., {h}:], q0[..., :{h}]) * sin2;"
         "k = k0 * cos2 + concat(-1, -k0[..., {h}:], k0[..., :{h}]) * sin2;"}},
       10},
      {"own matrices of gates and what they multiply",
       {{"gate_up",
         "g = squeeze(sum(wg * h2[:, None], -1), -1); u = squeeze(sum(wu * h2[:, None], -1), -1);"},
        {"gated", "gated = bf16(silu(g) * u);"}}},
      {"capped scores, norms after each part",
       {{"attend",
         "keys = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "values = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, None, :end];"
         "scores = 50 * tanh(0.088 / 50 * sum(reshape(q, {B}, {K}, {G}, 1, {D}) * keys, -1));"
         "mixed = bf16(reshape(sum(softmax(scores, -2) * values, -2), {B}, {W}));"},
        {"o",
         "a = reshape(sum(wo * mixed[:, None], -1), -1, {W}); r = x + rms_norm(a, post1, 1e-6);"},
        {"norm2", "h2 = bf16(rms_norm(r, norm2, 1e-6));"},
        {"gated", "gated = bf16(gelu_tanh(gu[:, :{F}]) * gu[:, {F}:]);"},
        {"down",
         "d = reshape(sum(w2 * gated[:, None], -1), -1, {W}); z = r + rms_norm(d, post2, 1e-6);"}},
       9},
      {"keys as they lie, queries of groups",
       {{"attend",
         "keys = reshape(ks, {B}, {P}, {K}, {D})[:, :end4, :, None];"
         "values = reshape(vs, {B}, {P}, {K}, {D})[:, :end4, :, None];"
         "weights = softmax(0.088 * sum(reshape(q, {B}, 1, {K}, {G}, {D}) * keys, -1), 1);"
         "mixed = bf16(reshape(sum(weights * values, 1), {B}, {W}));"}}},
      {"heads repeated by stacking what is there",
       {{"attend",
         "kt = swapaxes(reshape(ks, {B}, {P}, {K}, {D}), 1, 2)[:, :, :end4];"
         "vt = swapaxes(reshape(vs, {B}, {P}, {K}, {D}), 1, 2)[:, :, :end4];"
         "keys = reshape(stack(2, kt, kt, kt, kt), {B}, {H}, {P}, {D});"
         "values = reshape(stack(2, vt, vt, vt, vt), {B}, {H}, {P}, {D});"
         "weights = softmax(0.088 * sum(q[:, :, None] * keys, -1), -2);"
         "mixed = bf16(reshape(sum(weights * values, -2), {B}, {W}));"}}},
  };
  return all;
}

std::string written_layer(const LayerWriting& writing, const LayerSizes& z) {
  std::string text;
  for (const char* key : {"norm1", "qkv", "split", "rope", "put", "attend", "o", "norm2", "gate_up",
                          "gated", "down", "out"}) {
    const auto own = writing.pieces.find(key);
    text += own == writing.pieces.end() ? kBase.at(key) : own->second;
    text += '\n';
  }
  const std::int64_t all = z.heads + 2 * z.kv_heads;
  const std::map<std::string, std::int64_t> values = {
      {"B", z.batch},
      {"H", z.heads},
      {"K", z.kv_heads},
      {"G", z.heads / z.kv_heads},
      {"D", z.depth},
      {"h", z.depth / 2},
      {"W", z.heads * z.depth},
      {"F", z.hidden},
      {"F2", 2 * z.hidden},
      {"P", z.positions},
      {"A", all},
      {"N", all * z.depth},
      {"Q", z.heads * z.depth},
      {"HK", z.heads + z.kv_heads},
      {"E", (z.heads + z.kv_heads) * z.depth},
  };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{') {
      result += text[i];
      continue;
    }
    const std::size_t end = text.find('}', i);
    const std::string key = text.substr(i + 1, end - i - 1);
    std::int64_t value = values.at(key);
    i = end;
    if (text.compare(i + 1, 5, " / 64") == 0) {
      value /= 64;
      i += 5;
    }
    result += std::to_string(value);
  }
  return result;
}

std::map<std::string, LayerOperand> layer_operands(const LayerSizes& z) {
  const std::int64_t all = z.heads + 2 * z.kv_heads;
  const std::int64_t b = z.batch;
  const std::int64_t width = z.heads * z.depth;
  std::map<std::string, LayerOperand> result = {
      {"x", {DType::f32, {b, width}}},
      {"xb", {DType::bf16, {b, width}}},
      {"norm1", {DType::f32, {width}}},
      {"norm2", {DType::f32, {width}}},
      {"norm1b", {DType::bf16, {width}}},
      {"norm2b", {DType::bf16, {width}}},
      {"bqkv", {DType::bf16, {all * z.depth}}},
      {"c", {DType::f32, {b, 1, z.depth / 2}}},
      {"s", {DType::f32, {b, 1, z.depth / 2}}},
      {"cos2", {DType::f32, {b, 1, z.depth}}},
      {"sin2", {DType::f32, {b, 1, z.depth}}},
      {"cos2b", {DType::bf16, {b, 1, z.depth}}},
      {"sin2b", {DType::bf16, {b, 1, z.depth}}},
      {"kcache", {DType::f16, {b * z.positions, z.kv_heads, z.depth}}},
      {"vcache", {DType::f16, {b * z.positions, z.kv_heads, z.depth}}},
      {"kflat", {DType::f16, {b * z.positions * z.kv_heads, z.depth}}},
      {"vflat", {DType::f16, {b * z.positions * z.kv_heads, z.depth}}},
      {"cache", {DType::f16, {b * z.positions, 2, z.kv_heads, z.depth}}},
      {"kh", {DType::f16, {z.kv_heads, z.positions, z.depth}}},
      {"vh", {DType::f16, {z.kv_heads, z.positions, z.depth}}},
      {"rows", {DType::i32, {b}}},
      {"position", {DType::i32, {b}}},
      {"headrow", {DType::i32, {z.kv_heads}}},
      {"end", {DType::i32, {b, 1, 1, 1, 1}}},
      {"end4", {DType::i32, {b, 1, 1, 1}}},
      {"end1", {DType::i32, {}}},
      {"headof", {DType::i32, {z.heads}}},
      {"mask", {DType::f32, {b, 1, 1, z.positions, 1}}},
      {"costable", {DType::f32, {z.positions, z.depth / 2}}},
      {"sintable", {DType::f32, {z.positions, z.depth / 2}}},
      {"qnorm", {DType::bf16, {z.depth}}},
      {"knorm", {DType::bf16, {z.depth}}},
      {"post1", {DType::f32, {width}}},
      {"post2", {DType::f32, {width}}},
      {"bq", {DType::bf16, {width, 1}}},
      {"bk", {DType::bf16, {z.kv_heads * z.depth, 1}}},
      {"bv", {DType::bf16, {z.kv_heads * z.depth, 1}}},
  };
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    result[name] = {DType::bf16, {rows, columns}};
    result["fu" + name] = {DType::u4, {rows, columns}};
    result["u" + name] = {DType::u4, {rows, columns / 64, 64}};
    result["u" + name + "_scale"] = {DType::f16, {rows, columns / 64, 1}};
    result["u" + name + "_bias"] = {DType::f16, {rows, columns / 64, 1}};
    result["su" + name] = {DType::f16, {rows, columns / 64}};
    result["bu" + name] = {DType::f16, {rows, columns / 64}};
  };
  matrix("wqkv", all * z.depth, width);
  matrix("wo", width, width);
  matrix("w13", 2 * z.hidden, width);
  matrix("wq", width, width);
  matrix("wk", z.kv_heads * z.depth, width);
  matrix("wv", z.kv_heads * z.depth, width);
  matrix("wg", z.hidden, width);
  matrix("wu", z.hidden, width);
  matrix("w2", width, z.hidden);
  return result;
}

}  // namespace kiln::testing
