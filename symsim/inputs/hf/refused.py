"""Model types of transformers that are not read, and what they have that no table of a family says."""

from __future__ import annotations

REFUSED: dict[str, str] = {
    name: why
    for why, names in {
        "it has an encoder and a decoder that attends to it (cross-attention)": "t5 mt5 umt5 longt5 switch_transformers bart mbart marian pegasus "
        "pegasus_x bigbird_pegasus blenderbot blenderbot-small plbart prophetnet mvp led m2m_100 nllb-moe fsmt encoder-decoder t5gemma t5gemma2 "
        "vision-encoder-decoder trocr whisper moonshine musicgen musicgen_melody florence2 udop pix2struct kosmos-2.5",
        "some of its layers attend to an image or a sound (cross-attention)": "mllama idefics evolla git blip moshi",
        "its recurrence is not one of the mixers": "rwkv xlstm recurrent_gemma reformer",
        "its attention scores have learned terms of relative positions": "deberta deberta-v2 mpnet xlnet cpmant layoutlm longformer "
        "tapas funnel convbert inkling_mm_model inkling_text inkling2 inkling2_text",
        "its layers share one block of attention, and its selective scans have heads": "zamba",
        "each of its layers has two attentions and two networks beside the experts": "longcat_flash",
        "its attention chooses among experts": "jetmoe",
        "its keys come with learned masks and its streams with learned weights": "doge",
        "its layers are run several times a token": "hrm_text dory inkling2_loop inkling2_loop_text",
        "its layers are run several times a token, and its loss is of the words of every run": "ouro",
        "its queries attend to documents that stand before them": "unlimited_ocr unlimited_ocr_text",
        "its head has the wrapper's sizes, not the text tower's": "ovis2",
        "latent attention has a window in some of its layers and an indexer in others": "dots3_note dots3_note_text",
        "queries and keys are convolved, and routers read the router before them": "zaya",
        "its streams take in embeddings of several tokens, and an indexer goes with grouped queries": "qwen4_exp qwen4_exp_text",
        "it reads keys and values of another model": "gemma4_assistant gemma4_unified_assistant",
        "its masked head has two projections, and no norm": "ultrabert ultravbert",
        "images have experts of their own, of another width": "ernie4_5_vl_moe ernie4_5_vl_moe_text",
        "what is read by the networks of its layers is scaled by a small network of the delay": "voxtral_realtime voxtral_realtime_text",
        "learned gates weigh the residual and what is added to it, and norms stand around its experts": "muse_spark muse_spark_text",
        "its layers run twice: as an encoder, and as a decoder that attends to its keys and values too": "diffusion_gemma diffusion_gemma_text",
        "its latent attention has no part with positions, and its indexer one key for every few tokens": "glm5_next glm5_next_text",
        "queries and keys are normed by weights of every head, with biases that no other norm has": "chameleon",
        "its words and code books are looked up together and added, in a table of more rows than its head has": "kyutai_speech_to_text",
        "its words have tables of pronunciation and of shape beside them": "roc_bert",
        "every language has networks of its own in every layer": "xmod",
        "its bytes go through an encoder, a transformer of patches and a decoder that attend to each other (cross-attention)": "blt",
        "a second model, of actions, attends to the keys and values of the first": "pi0",
    }.items()
    for name in names.split()
}
