"""Make sentencepiece.json: two small vocabularies, texts, and their tokens by SentencePiece itself.

SentencePiece is no dependency of the course. To make the file anew:

    uv run --no-project --with sentencepiece==0.2.3 tests/engine/make_sentencepiece_fixture.py
"""

import io
import json
import random
from pathlib import Path

import sentencepiece

CORPUS = """\
The cat sat on the mat, and the other cat sat on the other mat beside the window.
A transformer turns a sequence of vectors into another sequence of vectors, layer by layer.
Every token attends to the tokens before it and to itself; nothing attends to the future.
It's what they'll say when you're late: "don't wait", isn't it?
Once upon a time there was a small machine that read one word after another.
The keys and the values of the left context never change, so they are kept.
In 1969, 12 people walked 3.5 km; in 2024 it was 1,234,567 steps at 98.6 %.
Attention weights are never negative and the weights of each query sum to one.
Der schnelle Fuchs springt über den faulen Hund; das Mädchen grüßt die Bären höflich.
Größere Straßen führen über die Brücke, kleinere Wege führen am Fluss entlang.
Les élèves étaient là dès l'été dernier, où ça ? À côté de la forêt, où l'on s'arrête.
El niño pequeño comió una piña mañana por la mañana. ¿Qué pasó? ¡Nada!
Мама мыла раму, а папа читал газету. Кошка сидела на окне и смотрела на улицу.
Каждое слово зависит от слов, которые стоят перед ним, и от самого себя.
Η γάτα κάθεται στο χαλί και κοιτάζει από το παράθυρο τη θάλασσα.
القطة تجلس على السجادة وتنظر من النافذة إلى الشارع. مرحبا بالعالم.
החתול יושב על השטיח ומסתכל מהחלון אל הרחוב. שלום עולם.
बिल्ली चटाई पर बैठी है और खिड़की से बाहर देख रही है। नमस्ते दुनिया।
猫は窓のそばに座って、外を見ています。日本語の文章は空白を使いません。
猫坐在窗边看着外面的街道。中文句子里没有空格,每个字都是一个符号。
고양이가 창문 옆에 앉아 밖을 보고 있습니다. 안녕하세요, 세계.
def attend(q, K, V):  # one query
    scores = K @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()) @ V
for i in range(10):
        if i % 2 == 0:
            print(f"{i:>4} {i ** 2}", end="")
#include <stdio.h>
int main(void) { printf("%d\\n", 0xFF); return 0; }
SELECT name, count(*) FROM tokens WHERE id >= 256 GROUP BY name;
{"name": "left-context", "version": "0.1.0", "tags": ["a", "b"], "empty": {}}
==== a heading ==== and a rule ---- and dots .... and stars ****
2 + 2 = 4; x != y; a <= b; f(g(h(x))) -> [[0, 1], [1, 0]]
😀 hello 😀 world 🎉🎉
"""

TEXTS = [
    "Once upon a time",
    "The capital of France is",
    " ",
    "  ",
    "     ",
    "a",
    " a",
    "a ",
    "  two spaces  inside  and  around  ",
    "the the  the   the    the     the",
    "\n",
    "\n\n\n",
    "line\n    indented\n\tand a tab\r\nand another\n\n\n",
    "\t\tx\t \ty",
    "It's you'll DON'T we've",
    "aaaaaaaaaaaaaaaaaaaaaaa",
    "==========-----------.......****",
    "((((((((((()))))))[[[[]]]]{{}}",
    "1234567890 3.14159 1,000,000 2024-05-17",
    "Größe, Straße, Bär, élève, piña, ça",
    "Кошка читала газету на улице",
    "η θάλασσα και η γάτα",
    "مرحبا بالعالم ٣٤",
    "שלום עולם",
    "नमस्ते दुनिया",
    "猫は外を見る。日本語と中文",
    "고양이 세계",
    "ไทย ქართული አማርኛ",  # scripts that the vocabulary has never seen
    "😀🎉🤖👨‍👩‍👧 🏳️‍🌈",
    "e\u0301 \u200b \u00a0 \ufeff \u3000",  # a combining accent and spaces of other kinds
    "\x00\x01\x02\x7f\x1b[0m",
    "½ⅷ�𝄞",
    "<s></s><unk><0x0A><0x41>",  # spelled out: text like any other
    "<|im_start|>user\nhi<|im_end|>",
    "[INST] What is 2 + 2? [/INST] 4",
    "def f(x):\n    return x ** 2  # 12345, 3.14\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];\n\t}\n",
    "<sep>",
    "a<sep>b",
    " <sep> ",
    "<sep><sep>>x",
    "the <sep>the",
    "abcabcd ab abcd",
    "====",
    "=== ==",
    "日本日本語",
    "x\n\ny\n\n\nz",
]
USER_DEFINED = ["<sep>", "<sep>>", "abc", "==", "日本", "\n\n"]

KINDS = {
    # As Llama 2 was trained: a space in front of the text, digits alone.
    "llama": {"vocab_size": 760, "split_digits": True, "allow_whitespace_only_pieces": True},
    # No space in front, pieces across words, and user-defined tokens within the text.
    "user-defined": {
        "vocab_size": 720,
        "add_dummy_prefix": False,
        "split_by_whitespace": False,
        "split_by_unicode_script": False,
        "user_defined_symbols": USER_DEFINED,
    },
}


def train(options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()),
        model_writer=model,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.99,  # the rarest characters become bytes
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def token_type(processor, token, user_defined):
    if processor.is_unknown(token):
        return 2
    if processor.is_control(token):
        return 3
    if processor.is_byte(token):
        return 6
    return 4 if processor.id_to_piece(token) in user_defined else 1


def mixtures(rng, count):
    """Return texts cut from the corpus and the texts above at random places, and glued."""
    source = CORPUS + "".join(TEXTS)
    for _ in range(count):
        starts = [rng.randrange(len(source)) for _ in range(rng.randint(1, 5))]
        glue = rng.choice(["", " ", "  ", "\n"])
        yield glue.join(source[start : start + rng.randint(1, 25)] for start in starts)


def describe(options):
    processor = train(options)
    user_defined = options.get("user_defined_symbols", [])
    tokens = range(len(processor))
    texts = TEXTS + list(mixtures(random.Random(7), 80))
    encoded = [processor.encode(text) for text in texts]
    assert [processor.decode(ids) for ids in encoded] == texts
    return {
        "space_prefix": options.get("add_dummy_prefix", True),
        "tokens": [processor.id_to_piece(token) for token in tokens],
        "scores": [processor.get_score(token) for token in tokens],
        "types": [token_type(processor, token, user_defined) for token in tokens],
        "texts": texts,
        "ids": encoded,
    }


if __name__ == "__main__":
    found = {name: describe(options) for name, options in KINDS.items()}
    lines = [
        f' "{kind}": {{\n'
        + ",\n".join(
            f'  "{key}": {json.dumps(value, ensure_ascii=True, separators=(",", ":"))}'
            for key, value in entry.items()
        )
        + "\n }"
        for kind, entry in found.items()
    ]
    path = Path(__file__).with_name("sentencepiece.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
