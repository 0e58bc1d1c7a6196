"""The same stack on a real model file: read, tokens, cache, layers, sampling.

In the order in which data flows: `gguf` reads the file, `tokenizer` turns text into tokens (its
two kinds are `bpe` and `sentencepiece`), `cache` keeps the keys and values of the left context,
`llama` runs the layers through the functions of the core, and `sampling` turns logits into the
next token. `guess` lets one pass check several tokens, and `constraint` says which may come at all.
"""
