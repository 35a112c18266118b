"""Files beside ``config.json`` decide what a prompt is and where an answer ends; each of their keys is judged here.

``generation_config.json`` has the tokens that end an answer.  ``tokenizer.json`` cuts text into tokens; beside it
``tokenizer_config.json`` says little: the hub's library (transformers 5) does not look at its ``add_bos_token`` where
there is a ``tokenizer.json``, although version 4 did, so that a run says where the two are at odds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from harness.kit.jsonfile import read_json
from harness.models.keys import NOTHING, ONE, Key, KeyVerdict, Refuses, ignored, judged, unless, used
from wse_core.errors.values import shown

__all__ = [
    "ADDED",
    "GENERATION",
    "PIECES",
    "SPECIAL_MAP",
    "TOKENIZER",
    "TOKENIZER_CONFIG",
    "content_of",
    "judged_generation",
    "judged_tokenizer",
    "judged_tokenizer_config",
    "optional_table",
]

GENERATION, TOKENIZER, TOKENIZER_CONFIG = "generation_config.json", "tokenizer.json", "tokenizer_config.json"
SPECIAL_MAP, ADDED, PIECES = "special_tokens_map.json", "added_tokens.json", "tokenizer.model"

DRAWING = "tokens are drawn as --temperature, --top-k and --seed say"
LENGTH = "--tokens says how many tokens come"

GENERATION_KEYS: dict[str, Key] = {
    "eos_token_id": used("tokens that end an answer", missing="those of config.json end an answer"),
    **dict.fromkeys(("bos_token_id", "pad_token_id"), ignored("what stands before a text is said by the tokenizer")),
    **dict.fromkeys(("do_sample", "top_k", "min_p", "epsilon_cutoff", "eta_cutoff", "top_h"),
                    ignored(DRAWING, neutral=(*NOTHING, 50))),
    **dict.fromkeys(("temperature", "top_p", "typical_p"), ignored(DRAWING, neutral=ONE)),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "length_penalty", "num_beams",
                     "num_beam_groups", "num_return_sequences", "guidance_scale"),
                    ignored("answers are greedy or drawn, without it", neutral=ONE)),
    **dict.fromkeys(("diversity_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
                     "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
                     "exponential_decay_length_penalty", "sequence_bias", "stop_strings", "penalty_alpha",
                     "watermarking_config", "min_length", "min_new_tokens", "renormalize_logits", "constraints",
                     "force_words_ids", "early_stopping"),
                    ignored("answers are greedy or drawn, without it", neutral=NOTHING)),
    **dict.fromkeys(("max_length", "max_new_tokens", "max_time"), ignored(LENGTH)),
    **dict.fromkeys(("transformers_version", "_from_model_config", "_commit_hash", "trust_remote_code"),
                    ignored("it is about the library that wrote the file")),
    **dict.fromkeys(("use_cache", "cache_implementation", "cache_config", "return_legacy_cache", "output_scores",
                     "output_logits", "output_attentions", "output_hidden_states", "return_dict_in_generate",
                     "remove_invalid_values", "num_assistant_tokens", "num_assistant_tokens_schedule",
                     "assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind", "is_assistant",
                     "prompt_lookup_num_tokens", "max_matching_ngram_size", "low_memory", "disable_compile",
                     "compile_config", "decoder_start_token_id", "token_healing", "max_cache_len", "use_mtp",
                     "prefill_chunk_size"),
                    ignored("it changes how the library gets an answer, not which")),
}  # fmt: skip

TOKENIZER_KEYS: dict[str, Key] = {
    "version": ignored("the library `tokenizers` checks it"),
    "truncation": ignored("a prompt is read whole"),
    "padding": ignored("nothing is added to a prompt"),
    "added_tokens": used("tokens that are cut out of a text before everything else"),
    "normalizer": used("what is changed in a text first"),
    "pre_tokenizer": used("where a text is cut first"),
    "post_processor": used("what stands before and behind a text"),
    "decoder": used("how tokens become text"),
    "model": used("tokens of a text", lambda value, _: _without_dropout(value)),
}


def _without_dropout(value: Any) -> str | None:
    if isinstance(value, dict) and value.get("dropout") not in (None, 0):
        return "with dropout a text has other tokens each time"
    return None


def content_of(token: Any) -> str | None:
    """Return the text of a special token, which stands as text or as a table with its `content`; None if it is none."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _texts(table: Mapping[str, Any]) -> set[str]:
    """Return the texts that have a token by a ``tokenizer.json``."""
    model, added = table.get("model"), table.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    texts = {content_of(token) or "" for token in added} if isinstance(added, list) else set()
    if isinstance(vocabulary, dict):
        texts |= set(vocabulary)
    elif isinstance(vocabulary, list):  # pieces with their scores
        texts |= {piece[0] for piece in vocabulary if isinstance(piece, list) and piece and isinstance(piece[0], str)}
    return texts


def _steps(part: Any) -> list[dict[str, Any]]:
    """Return the steps of a part of a ``tokenizer.json``, which may be a sequence of them."""
    if not isinstance(part, dict):
        return []
    for name in ("normalizers", "pretokenizers", "processors"):
        if isinstance(part.get(name), list):
            return [step for step in part[name] if isinstance(step, dict)]
    return [part]


def _puts_a_space(table: Mapping[str, Any]) -> bool | None:
    """Return whether a ``tokenizer.json`` puts a space before a text; None if it has no step that could."""
    found = None
    for step in (*_steps(table.get("normalizer")), *_steps(table.get("pre_tokenizer"))):
        kind = step.get("type")
        if kind == "Prepend":
            return True
        if kind == "ByteLevel":
            found = bool(found or step.get("add_prefix_space"))
        elif kind == "Metaspace":
            puts = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never"
            found = bool(found or puts)
    return found


def _puts_tokens(table: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a ``tokenizer.json`` puts special tokens before, and behind, a text."""
    begins = ends = False
    for step in _steps(table.get("post_processor")):
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            begins = ends = True
        elif step.get("type") == "TemplateProcessing" and isinstance(step.get("single"), list):
            special = [isinstance(part, dict) and "SpecialToken" in part for part in step["single"]]
            begins, ends = begins or special[:1] == [True], ends or special[-1:] == [True]
    return begins, ends


def _flag(value: Any, _: Any) -> str | None:
    return None if value is None or isinstance(value, bool) else "it is neither true nor false"


def _as_the_pieces(table: Mapping[str, Any]) -> Refuses:
    """Return what refuses another space before a text than pieces have."""
    own = _puts_a_space(table)
    return lambda value, _: (
        None if value in (None, own) else f"{PIECES} puts {'a' if own else 'no'} space before a text"
    )


def _tokenizer_config_keys(table: Mapping[str, Any]) -> dict[str, Key]:
    """Return the known keys of the ``tokenizer_config.json`` beside a ``tokenizer.json``."""
    texts, space, (begins, ends) = _texts(table), _puts_a_space(table), _puts_tokens(table)

    def foreign(tokens: Collection[Any]) -> str | None:
        lost = next((text for token in tokens if (text := content_of(token)) and text not in texts), None)
        return None if lost is None else f"{TOKENIZER} has no token {shown(lost)}, which the library would add"

    def listed(value: Any, _: Any) -> str | None:
        return foreign(list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [])

    def prefix(value: Any, _: Any) -> str | None:
        if value is None or space is None or value is space:
            return _flag(value, _)
        return f"{TOKENIZER} {'puts a space' if space else 'puts no space'} before a text"

    special = ignored("special tokens stand in tokenizer.json", lambda value, _: foreign([value]))
    return {
        "add_bos_token": ignored(f"{TOKENIZER} alone says what stands before a text", _flag, neutral=(None, begins)),
        "add_eos_token": ignored(f"{TOKENIZER} alone says what stands behind a text", _flag, neutral=(None, ends)),
        "split_special_tokens": used("whether special tokens in a prompt are cut like other text", _flag),
        "add_prefix_space": ignored(f"{TOKENIZER} does the same", prefix),
        "added_tokens_decoder": ignored("the same tokens stand in tokenizer.json", listed),
        "additional_special_tokens": ignored("the same tokens stand in tokenizer.json", listed),
        "extra_special_tokens": ignored("the same tokens stand in tokenizer.json", listed),
        **dict.fromkeys(
            ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"), special
        ),
        "chat_template": used("the chat template of --chat"),
        "clean_up_tokenization_spaces": ignored("the text is that of the tokens; the library leaves BPE alone too"),
        "model_max_length": ignored("the context of the model is the limit"),
        "use_default_system_prompt": unless(NOTHING, "no other text is put before a prompt"),
        "do_lower_case": unless(NOTHING, "what is changed in a text stands in tokenizer.json"),
        "dropout": unless(NOTHING, "with dropout a text has other tokens each time"),
        **dict.fromkeys(
            ("padding_side", "truncation_side", "max_length", "stride", "truncation_strategy", "pad_to_multiple_of",
             "pad_token_type_id", "model_input_names", "padding", "truncation"),
            ignored("it is about batches of texts"),
        ),
        **dict.fromkeys(
            ("tokenizer_class", "legacy", "sp_model_kwargs", "spaces_between_special_tokens", "errors", "use_fast",
             "fast", "backend", "is_local", "local_files_only", "name_or_path", "special_tokens_map_file",
             "tokenizer_file", "vocab_file", "merges_file", "processor_class", "from_slow", "return_token_type_ids",
             "vocab_size", "tokenizer_type", "trust_remote_code",
             "clean_up_tokenization", "response_schema", "fix_mistral_regex"),
            ignored("it is about how the library makes or keeps a tokenizer; tokenizer.json is complete"),
        ),
        "auto_map": ignored("code beside a model is not run", neutral=NOTHING),
    }  # fmt: skip


def judged_generation(table: Mapping[str, Any]) -> list[KeyVerdict]:
    """Return what is done with every key of a ``generation_config.json``."""
    return judged(GENERATION, table, GENERATION_KEYS, "generation")


def judged_tokenizer(table: Mapping[str, Any]) -> list[KeyVerdict]:
    """Return what is done with every key of a ``tokenizer.json``."""
    return judged(TOKENIZER, table, TOKENIZER_KEYS, "a tokenizer")


def judged_tokenizer_config(
    config: Mapping[str, Any], table: Mapping[str, Any], template: str | None = None, alone: bool = False
) -> list[KeyVerdict]:
    """Return what is done with every key of a ``tokenizer_config.json``.

    Parameters
    ----------
    config, table : mapping
        Of the file, and of the ``tokenizer.json`` beside it.
    template : str, optional
        The file that the chat template comes from, if it is another one.
    alone : bool
        Whether there is no ``tokenizer.json``, and `table` was made of pieces.
    """
    keys = _tokenizer_config_keys(table)
    if alone:
        keys["add_bos_token"] = used("whether bos_token stands before a text", _flag, missing="true")
        keys["add_eos_token"] = used("whether eos_token stands behind a text", _flag)
        keys["added_tokens_decoder"] = used(f"tokens beside those of {PIECES}, and which are special")
        keys["add_prefix_space"] = used("whether a space is put before a text", _as_the_pieces(table))
    value = config.get("chat_template")
    if template is not None:
        keys["chat_template"] = ignored(f"the chat template is that of {template}")
    elif isinstance(value, list):
        several = any(isinstance(each, dict) and each.get("name") == "default" for each in value)
        keys["chat_template"] = (
            used("the chat template of --chat: that which is called default")
            if several
            else ignored("none of its templates is called default, so that there is no --chat")
        )
    return judged(TOKENIZER_CONFIG, config, keys, "a tokenizer")


def optional_table(path: Path) -> dict[str, Any] | None:
    """Return the table of a JSON file that need not be there; None if it is not.

    Raises
    ------
    ConfigError
        It is there and cannot be read.
    """
    return read_json(path) if path.exists() or path.is_symlink() else None
