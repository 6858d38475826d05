/// Losses that learn from preferences: DPO, IPO, ORPO, SimPO and KTO, fused with the head. They need the logits'
/// gradient only when whole sequences have been summed, so that the logits are computed twice, chunk by chunk, and
/// never exist as a whole (ops::token_log_probabilities).
///
/// A batch of pairs is hidden states [2 * pairs, sequence, hidden], first those of all chosen answers, then those of
/// the rejected ones in the same order, and labels int64 [2 * pairs, sequence], ops::kIgnoreIndex on the prompt and
/// padding.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include <ilme/ops/cross_entropy.hpp>
#include <ilme/ops/token_losses.hpp>

namespace ilme::loss {

/// log p of every sequence's counted labels, [sequences], and how many they are, [sequences]; float32 (float64 for
/// float64).
struct SequenceLogProbabilities {
  at::Tensor sums, tokens;
  at::Tensor means() const { return sums / tokens.clamp_min(1); }
};

namespace detail {

inline SequenceLogProbabilities sums_of(const at::Tensor& log_probabilities, const at::Tensor& labels,
                                        std::int64_t ignore_index) {
  return {log_probabilities.view(labels.sizes()).sum(-1),
          labels.ne(ignore_index).sum(-1).to(log_probabilities.scalar_type())};
}

inline void check_sequences(const at::Tensor& hidden, const at::Tensor& labels) {
  TORCH_CHECK_VALUE(hidden.dim() == 3 && labels.sizes() == hidden.sizes().slice(0, 2), "ilme::loss: labels ",
                    labels.sizes(), " do not fit hidden states ", hidden.sizes(),
                    ", expected [sequences, sequence] and [sequences, sequence, hidden]");
}

/// The chosen half (0) or the rejected half (1) of a batch of pairs.
inline at::Tensor half(const at::Tensor& values, std::int64_t which) {
  TORCH_CHECK_VALUE(values.dim() == 1 && values.size(0) % 2 == 0, "ilme::loss: a batch of pairs has sequences ",
                    values.sizes(), ", expected an even number of them");
  const std::int64_t pairs = values.size(0) / 2;
  return values.narrow(0, which * pairs, pairs);
}

inline at::Tensor against(const at::Tensor& policy, const at::Tensor& reference) {
  TORCH_CHECK_VALUE(policy.sizes() == reference.sizes(), "ilme::loss: reference log-probabilities ", reference.sizes(),
                    " do not fit sequences ", policy.sizes());
  return policy - reference.detach();
}

/// -log sigmoid(h), or with label smoothing e, the share of pairs that are the wrong way round, the expectation of that
/// (cDPO, Mitchell 2023).
inline at::Tensor sigmoid_loss(const at::Tensor& h, double label_smoothing) {
  const at::Tensor loss = at::log_sigmoid(h).neg();
  return label_smoothing > 0 ? loss * (1 - label_smoothing) - at::log_sigmoid(-h) * label_smoothing : loss;
}

}  // namespace detail

/// Of hidden states [sequences, sequence, hidden] and labels int64 [sequences, sequence]; under a no-grad guard, what a
/// reference model's log-probabilities are precomputed with.
inline SequenceLogProbabilities sequence_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight,
                                                           const at::Tensor& labels,
                                                           const ops::CrossEntropyOptions& options = {}) {
  detail::check_sequences(hidden, labels);
  return detail::sums_of(ops::token_log_probabilities(hidden, weight, labels, options), labels, options.ignore_index);
}

/// The twin of sequence_log_probabilities, over logits that exist as a whole.
inline SequenceLogProbabilities sequence_log_probabilities_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                                                     const at::Tensor& labels,
                                                                     const ops::CrossEntropyOptions& options = {}) {
  detail::check_sequences(hidden, labels);
  return detail::sums_of(ops::token_log_probabilities_reference(hidden, weight, labels, options), labels,
                         options.ignore_index);
}

/// A sum over pairs (`tokens` is their number; for KTO that of sequences) and the implicit rewards, [chosen] and
/// [rejected], without gradient.
struct PreferenceLoss : ops::LossSum {
  at::Tensor chosen_rewards, rejected_rewards;

  PreferenceLoss(const at::Tensor& losses, const at::Tensor& chosen, const at::Tensor& rejected)
      : ops::LossSum{losses.sum(), losses.numel()},
        chosen_rewards(chosen.detach()),
        rejected_rewards(rejected.detach()) {}

  /// Of pairs: the share whose chosen answer has the higher reward.
  at::Tensor accuracy() const { return chosen_rewards.gt(rejected_rewards).to(chosen_rewards.scalar_type()).mean(); }
  at::Tensor margin() const { return chosen_rewards.mean() - rejected_rewards.mean(); }
};

/// Direct preference optimisation (Rafailov et al. 2023): -log sigmoid(h), where h is beta times how much more the
/// policy than the reference prefers the chosen answer. Rewards are beta (log p - log p_reference).
struct Dpo {
  enum class Form {
    sigmoid,
    ipo,  ///< (h / beta - 1 / (2 beta))^2 (Azar et al. 2023) over means per token instead of sums, as TRL has it
  };
  double beta = 0.1;
  double label_smoothing = 0.0;  ///< of the sigmoid form
  Form form = Form::sigmoid;
  ops::CrossEntropyOptions options = {};  ///< chunk_bytes, vocabulary_size, ignore_index, soft_cap

  /// `reference`: the reference model's SequenceLogProbabilities::sums of the same batch, [2 * pairs].
  PreferenceLoss operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                            const at::Tensor& reference) const {
    return (*this)(sequence_log_probabilities(hidden, weight, labels, options), reference);
  }

  PreferenceLoss operator()(const SequenceLogProbabilities& policy, const at::Tensor& reference) const {
    at::Tensor ratios = detail::against(policy.sums, reference);
    if (form == Form::ipo) ratios = ratios / policy.tokens.clamp_min(1);
    const at::Tensor chosen = detail::half(ratios, 0), rejected = detail::half(ratios, 1), h = chosen - rejected;
    const at::Tensor losses =
        form == Form::ipo ? (h - 1 / (2 * beta)).square() : detail::sigmoid_loss(beta * h, label_smoothing);
    return {losses, beta * chosen, beta * rejected};
  }
};

/// Odds-ratio preference optimisation (Hong et al. 2024), without a reference model: the chosen answer's mean negative
/// log-likelihood plus beta (the paper's lambda) times -log sigmoid of the log odds ratio, odds of the mean
/// log-probability per token. Rewards are beta times that mean.
struct Orpo {
  double beta = 0.1;
  ops::CrossEntropyOptions options = {};

  PreferenceLoss operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) const {
    return (*this)(sequence_log_probabilities(hidden, weight, labels, options));
  }

  PreferenceLoss operator()(const SequenceLogProbabilities& policy) const {
    const at::Tensor means = policy.means(), chosen = detail::half(means, 0), rejected = detail::half(means, 1);
    const auto log_odds = [](const at::Tensor& x) {  // log(p / (1 - p)); p = 1 would be infinite
      const at::Tensor below = x.clamp_max(-1e-6);
      return below - below.expm1().neg().log();
    };
    const at::Tensor ratio = log_odds(chosen) - log_odds(rejected);
    return {beta * detail::sigmoid_loss(ratio, 0.0) - chosen, beta * chosen, beta * rejected};
  }
};

/// Simple preference optimisation (Meng et al. 2024), without a reference model: -log sigmoid(beta (mean log p of the
/// chosen - that of the rejected answer) - margin). Rewards are beta times the mean log-probability per token.
struct SimPo {
  double beta = 2.0;
  double margin = 1.0;  ///< the paper's gamma
  double label_smoothing = 0.0;
  ops::CrossEntropyOptions options = {};

  PreferenceLoss operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) const {
    return (*this)(sequence_log_probabilities(hidden, weight, labels, options));
  }

  PreferenceLoss operator()(const SequenceLogProbabilities& policy) const {
    const at::Tensor rewards = beta * policy.means();
    const at::Tensor chosen = detail::half(rewards, 0), rejected = detail::half(rewards, 1);
    return {detail::sigmoid_loss(chosen - rejected - margin, label_smoothing), chosen, rejected};
  }
};

/// Kahneman-Tversky optimisation (Ethayarajh et al. 2024), of single answers that are desirable or not: weight (1 -
/// sigmoid(+-(r - beta baseline))), r = beta (log p - log p_reference), + for the desirable. hidden [sequences,
/// sequence, hidden]; the rewards of desirable answers come back as chosen_rewards, of the others as rejected_rewards.
struct Kto {
  double beta = 0.1, desirable_weight = 1.0, undesirable_weight = 1.0;
  ops::CrossEntropyOptions options = {};

  /// The divergence from the reference that gains and losses are counted from, a scalar without gradient: the mean of
  /// log p - log p_reference over prompts with answers that are not theirs, at least 0. Mean it over ranks.
  static at::Tensor baseline(const at::Tensor& mismatched, const at::Tensor& mismatched_reference) {
    return detail::against(mismatched.detach(), mismatched_reference).mean().clamp_min(0);
  }

  /// desirable: bool [sequences]; reference: the reference model's sums [sequences]; baseline: as above, or 0.
  PreferenceLoss operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                            const at::Tensor& desirable, const at::Tensor& reference,
                            const at::Tensor& baseline) const {
    return (*this)(sequence_log_probabilities(hidden, weight, labels, options), desirable, reference, baseline);
  }

  PreferenceLoss operator()(const SequenceLogProbabilities& policy, const at::Tensor& desirable,
                            const at::Tensor& reference, const at::Tensor& baseline) const {
    TORCH_CHECK_VALUE(desirable.scalar_type() == at::kBool && desirable.sizes() == policy.sums.sizes(),
                      "ilme::loss::Kto: desirable is ", desirable.scalar_type(), " ", desirable.sizes(),
                      ", expected Bool ", policy.sums.sizes());
    const at::Tensor rewards = beta * detail::against(policy.sums, reference);
    const at::Tensor gain = (rewards - beta * baseline.detach()) * (desirable.to(rewards.scalar_type()) * 2 - 1);
    const at::Tensor weights = at::full_like(rewards, undesirable_weight).masked_fill_(desirable, desirable_weight);
    return {weights * (1 - gain.sigmoid()), rewards.masked_select(desirable),
            rewards.masked_select(desirable.logical_not())};
  }
};

}  // namespace ilme::loss
