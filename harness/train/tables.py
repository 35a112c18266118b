"""The file of ``wse train`` has these tables and keys; what concerns several of them is `harness.train.config`.

Each table is a dataclass and each key a field of it, with its meaning and limits (`harness.config.options`).  The
modelled numbers of memory service and tree are no fields: ``[memx]`` and ``[swarm]`` take them by their names in
`wse_core.numbers` (`harness.config.machine.of_parts`).
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.networks.graph.plain import EPSILON
from fabric.networks.graph.resample import METHODS
from fabric.networks.graph.table import CHOICES
from harness.config.options import option
from harness.train.nodes import NODE_OPERATIONS, PRESETS
from harness.train.pipeline_config import MODES, PipelineConfig
from memx.optimizer import OPTIMIZERS, Optimizer, make_optimizer

__all__ = [
    "CheckpointConfig",
    "CsConfig",
    "DataConfig",
    "LayerConfig",
    "LossScaleConfig",
    "MemxConfig",
    "MeshConfig",
    "NetworkConfig",
    "NodeConfig",
    "OptimizerConfig",
    "RunConfig",
    "ScheduleConfig",
    "SparsityConfig",
    "TrainFile",
]


@dataclass(frozen=True)
class LayerConfig:
    """A table of ``[[network.layers]]`` describes a fully connected layer."""

    outputs: int = option(doc="features that the layer gives", low=1, high=10**7)
    activation: str = option("none", doc="what follows the product", choices=CHOICES)
    bias: bool = option(True, doc="add a learned number to each output feature")
    norm: bool = option(False, doc="normalise the output features before the activation")
    density: float | None = option(
        None, doc="share of the weights that exist (default: sparsity.density)", low=0.0, high=1.0
    )


@dataclass(frozen=True)
class NodeConfig:
    """A table of ``[[network.nodes]]`` describes an operation of a network that is no chain of layers."""

    name: str = option(doc="unique name, after which its parameters are called")
    op: str = option(doc="what it does", choices=NODE_OPERATIONS)
    inputs: tuple[str, ...] = option(
        (), doc="names of what it takes, ``input`` for the samples (default: what the one before it gives)"
    )
    outputs: int | None = option(
        None, doc="of linear, convolutions: features, or channels, that it gives", low=1, high=10**7
    )
    bias: bool | None = option(
        None, doc="of linear, convolutions: add a learned number to each feature, or channel (default: yes)"
    )
    density: float | None = option(
        None,
        doc="of linear, convolutions: share of the weights that exist (default: sparsity.density)",
        low=0.0,
        high=1.0,
    )
    deviation: float | None = option(
        None,
        doc="of linear, convolutions: of the first weights (default: the root of 2 / (inputs of a feature x density))",
        low=0.0,
    )
    kernel: int | None = option(
        None,
        doc="of convolutions, pooling, means of resample: rows of a window (default of avgpool: the whole image); of "
        "upsample: rows of pixels that one becomes",
        low=1,
        high=10**4,
    )
    kernel_width: int | None = option(None, doc="of the same: its columns (default: kernel)", low=1, high=10**4)
    stride: int | None = option(
        None, doc="pixels from one window to the next (default: 1, of pooling: kernel)", low=1, high=10**4
    )
    stride_width: int | None = option(
        None, doc="of the same, along a row (default: stride, of pooling without: kernel_width)", low=1, high=10**4
    )
    dilation: int | None = option(
        None, doc="of convolutions: pixels from one of a window to the next (default: 1)", low=1, high=10**4
    )
    dilation_width: int | None = option(None, doc="of the same, along a row (default: dilation)", low=1, high=10**4)
    padding: int | None = option(
        None,
        doc="of convolutions, pooling: rows and columns of zeros, which maxpool never takes, on each side (default: 0)",
        low=0,
        high=10**4,
    )
    padding_width: int | None = option(
        None, doc="of the same: columns on the left and on the right (default: padding)", low=0, high=10**4
    )
    padding_below: int | None = option(None, doc="of the same: rows below (default: padding)", low=0, high=10**4)
    padding_right: int | None = option(
        None, doc="of the same: columns on the right (default: padding_width)", low=0, high=10**4
    )
    output_padding: int | None = option(
        None, doc="of transposed: rows and columns more at the end of the result (default: 0)", low=0, high=10**4
    )
    output_padding_width: int | None = option(
        None, doc="of the same: columns more (default: output_padding)", low=0, high=10**4
    )
    groups: int | None = option(
        None,
        doc="of convolutions, groupnorm: parts of the channels (default of convolutions: 1); of headrms: heads",
        low=1,
        high=10**6,
    )
    momentum: float | None = option(
        None, doc="of batchnorm: share of a batch in the running statistics (default: 0.1)", low=0.0, high=1.0
    )
    epsilon: float | None = option(
        None,
        doc="of normalisations: this is added to variances, or means of squares (default: network.epsilon)",
        low=1e-12,
        high=1.0,
    )
    each: bool | None = option(
        None, doc="of shift, scale: a learned number for each pixel of each channel (default: for each channel)"
    )
    heads: int | None = option(None, doc="of attention: heads, which share the features equally", low=1, high=10**6)
    kv_heads: int | None = option(
        None,
        doc="of attention: heads of keys and values; neighbouring query heads share one (default: heads)",
        low=1,
        high=10**6,
    )
    base: int | None = option(
        None,
        doc="of rotary: the last pair of a head turns nearly so many times slower than the first",
        low=2,
        high=10**9,
    )
    turned: int | None = option(
        None, doc="of rotary: features of a head, from the first on, that are turned (default: all)", low=2, high=10**6
    )
    scaled: int | None = option(
        None,
        doc="of attention: scores are divided by the root of this (default: features of a head)",
        low=1,
        high=10**9,
    )
    window: int | None = option(
        None,
        doc="of attention: tokens see only those that are fewer tokens away than this (default: no window)",
        low=1,
        high=2**14,
    )
    slopes: tuple[float, ...] = option(
        (), doc="of attention: scores of each head fall by so much per token of distance (ALiBi; default: they do not)"
    )
    biases: tuple[int, ...] = option(
        (),
        doc="of attention: learned numbers that scores of each head get; which of them, from 0 on, each distance of a "
        "query behind a key that it sees gets, the least first, or each query of each key (default: none)",
    )
    fixed: bool | None = option(None, doc="of what has numbers that are learned: they stay as they are (default: no)")
    fixed_outputs: tuple[int, ...] = option(
        (), doc="of linear: features of the result, from 0 on, whose weights stay as they are"
    )
    method: str | None = option(None, doc="of resample: what a pixel of the result is", choices=METHODS)
    sides: tuple[int, ...] = option((), doc="of resample: rows and columns of the result, unless windows say them")
    rows: tuple[int, ...] = option((), doc="of resample, to pick: which row of pixels each is, from 0 on; -1: zeros")
    columns: tuple[int, ...] = option((), doc="of the same: which column each is")
    ratio: float | None = option(
        None,
        doc="of dropout: share of the numbers that is dropped in an iteration; tests go without",
        low=0.0,
        high=1.0,
    )
    together: int | None = option(
        None, doc="of dropout: so many neighbouring features are dropped together (default: 1)", low=1, high=10**7
    )
    factor: float | None = option(None, doc="of multiple: what all numbers are multiplied with (default: 1)")
    shared: int | None = option(
        None,
        doc="of scale, headrms, groupnorm: so many numbers are learned, and repeated over the channels (default: one "
        "for each)",
        low=1,
        high=10**6,
    )
    image: tuple[int, ...] = option(
        (), doc="of what gives features: channels, rows and columns of the image that they are from here on"
    )
    shares: str = option(
        "", doc="of what has numbers that are learned: the node before it whose numbers these are too (default: none)"
    )
    causal: bool | None = option(None, doc="of attention: no token sees what comes behind it (default: yes)")


@dataclass(frozen=True)
class NetworkConfig:
    """Layers, first to last, or operations; the loss follows the last one, softmax and cross-entropy or another."""

    inputs: int = option(doc="features of a sample", low=1, high=10**7)
    image: tuple[int, ...] = option(
        (), doc="of images: channels, rows and columns of a sample, in this order; inputs is their product"
    )
    places: tuple[int, ...] = option(
        (),
        doc="tables that a place in a sequence is looked up in, behind a token's own features: rows, row of the first "
        "token, rows from one token to the next; three numbers each",
    )
    fixed_places: tuple[int, ...] = option((), doc="numbers of such tables, from 0 on, that are not trained")
    token_scale: float = option(1.0, doc="the number among zeros that says which token it is")
    place_scales: tuple[float, ...] = option(
        (), doc="the numbers among zeros that say places, one for each of `places` (default: ones)"
    )
    patches: tuple[int, ...] = option(
        (),
        doc="of images that are cut into the tokens of a sequence: channels, rows and columns of an image, rows and "
        "columns of a patch, tokens before those of the patches, 1 if a one tells the patches from them, 1 if the "
        "channels of a pixel lie side by side",
    )
    padding: int | None = option(
        None, doc="number of the token that fills sequences: the first product does not train its row", low=0
    )
    ending: tuple[int, ...] = option(
        (), doc="numbers of tokens that stand behind all others of a sequence and have no label: padding, not counted"
    )
    absent: tuple[int, ...] = option((), doc="numbers of tokens that data must not have: their places are not known")
    masked: tuple[int, ...] = option(
        (),
        doc="of a file with a mask of padding as a second input: number of the token that fills sequences, and what "
        "the mask is there, 0 or 1, the other one elsewhere",
    )
    hidden: tuple[int, ...] = option(
        (), doc="numbers of tokens that attention hides: no sequence consists of such ones alone"
    )
    dropout: str = option(
        "",
        doc="of a file: ignore leaves its dropout out; ignore-attention that of attention alone, which is refused "
        "otherwise",
        choices=("", "ignore", "ignore-attention"),
    )
    epsilon: float = option(
        EPSILON, doc="normalisations add this to variances, or means of squares (default of nodes)", low=1e-12, high=1.0
    )
    tied: str = option(
        "", doc="name of a product whose weights are the table that the first product looks tokens up in, turned"
    )
    layers: tuple[LayerConfig, ...] = option(
        (), doc="list of layers, the last one gives one number per class, or target"
    )
    nodes: tuple[NodeConfig, ...] = option(
        (), doc="instead of layers: list of operations, in an order that can be done"
    )
    preset: str = option("", doc="instead of layers: a network of the sizes below", choices=("", *PRESETS))
    vocab_size: int | None = option(None, doc="of a preset: classes (default: those of a text)", low=2, high=10**7)
    hidden_size: int | None = option(None, doc="of a preset: features of a token", low=1, high=10**6)
    num_hidden_layers: int | None = option(None, doc="of a preset: blocks", low=1, high=1000)
    num_attention_heads: int | None = option(None, doc="of a preset: heads", low=1, high=10**6)
    num_key_value_heads: int | None = option(
        None, doc="of llama: heads of keys and values (default: num_attention_heads)", low=1, high=10**6
    )
    intermediate_size: int | None = option(
        None, doc="of a preset: features between the products of a block (default: 4 x hidden_size)", low=1, high=10**7
    )
    embedding_size: int | None = option(
        None, doc="of resnet: channels of the first convolution (default: the first of hidden_sizes)", low=1, high=10**6
    )
    hidden_sizes: tuple[int, ...] = option((), doc="of resnet: channels of each stage")
    depths: tuple[int, ...] = option((), doc="of resnet: blocks of each stage")
    file: str = option("", doc="an .onnx file with layers and first weights, instead of inputs and layers")
    weights: str = option("", doc="file of first weights, masks and optimizer state: .safetensors or .npz")


@dataclass(frozen=True)
class DataConfig:
    """The table ``[data]`` says where samples come from and how many make a batch."""

    source: str = option(
        "digits",
        doc="digits, digits-ink (a label per pixel), mnist-shaped, or x_train, y_train, x_test, y_test as an .npz, an "
        ".h5, a directory of .npy or idx files; or a .csv; or pydoc or a .txt, whose next characters are learned",
    )
    sequence: int = option(
        1, doc="samples, one behind the other, that attention sees together: tokens of a text", low=1, high=10**6
    )
    labels: str = option(
        "class",
        doc="class: every sample has one; token: tokens may have none, -100; first, last: samples are cut into the "
        "tokens of a sequence, of which the first or last one has the class; pixel: every pixel of the result may have "
        "one, or -100; with the loss mse targets in the place of a class, and of -100 no numbers: NaN",
        choices=("class", "token", "first", "last", "pixel"),
    )
    scale: float = option(1.0, doc="of files: samples are divided by this, 255 for pixels of a byte", low=1e-30)
    held_out: float = option(0.2, doc="of a .csv or a text: share of the samples for tests", low=0.0, high=1.0)
    batch: int = option(64, doc="samples of an iteration, over all wafers", low=1, high=2**31)
    seed: int = option(0, doc="of the order of the samples", low=0, high=2**63 - 1)


@dataclass(frozen=True)
class MeshConfig:
    """The table ``[mesh]`` says which PEs of each wafer are used."""

    width: int = option(4, doc="PEs along x: features", low=1)
    height: int = option(4, doc="PEs along y: samples", low=1)
    head_columns: int = option(
        1, doc="columns that a head of attention lies on, a part of its features in each", low=1, high=10**6
    )
    image_rows: int = option(
        1, doc="rows of PEs that an image lies on, a strip of its rows of pixels in each", low=1, high=10**6
    )
    column_groups: int = option(
        1,
        doc="groups of columns, each with all features of other samples (layout B); their sums meet in as many more "
        "rows of PEs as a group has columns",
        low=1,
        high=10**6,
    )

    @property
    def columns(self) -> int:
        """The features lie over so many columns: those of a group."""
        return self.width // self.column_groups

    @property
    def groups(self) -> int:
        """Samples are shared by so many rows of PEs, or groups of them that an image lies on."""
        return max(1, self.height // self.image_rows) * self.column_groups

    def __str__(self) -> str:
        """Return the mesh in words."""
        groups = f" in {self.column_groups} groups of columns" if self.column_groups > 1 else ""
        return f"{self.width} x {self.height} PEs{groups}"


@dataclass(frozen=True)
class OptimizerConfig:
    """The table ``[train.optimizer]`` describes an optimizer of `memx.optimizer`; only what it has may be given."""

    name: str = option("adam", doc="name of the optimizer", choices=tuple(OPTIMIZERS))
    lr: float | None = option(None, doc="learning rate", low=0.0)
    weight_decay: float | None = option(None, doc="weight decay", low=0.0)
    momentum: float | None = option(None, doc="momentum of sgd", low=0.0)
    beta1: float | None = option(None, doc="decay of the first moment", low=0.0)
    beta2: float | None = option(None, doc="decay of the second moment", low=0.0)
    eps: float | None = option(None, doc="added to the root of the second moment", low=0.0)
    decays: str = option(
        "all", doc="what weight decay shrinks: all, or no biases and norms", choices=("all", "weights")
    )

    def build(self) -> Optimizer:
        """Return the optimizer; `ConfigError` for an option that it does not have."""
        mine = {key: value for key, value in vars(self).items() if value is not None and key != "decays"}
        return make_optimizer(**mine)


@dataclass(frozen=True)
class ScheduleConfig:
    """The table ``[train.schedule]`` gives the learning rate over the iterations of a phase, as a multiple of the
    optimizer's.
    """

    kind: str = option(
        "constant",
        doc="how it falls after the warm-up",
        choices=("constant", "cosine", "step", "linear", "inverse-root", "one-cycle"),
    )
    warmup: int = option(0, doc="iterations in which it rises linearly", low=0)
    floor: float = option(0.0, doc="of cosine, linear, one-cycle: where it ends", low=0.0, high=1.0)
    every: int = option(100, doc="of step: iterations between steps", low=1)
    factor: float = option(0.1, doc="of step: what it is multiplied with", low=0.0, high=1.0)
    rise: float = option(0.3, doc="of one-cycle: share of the phase in which it rises", low=0.0, high=0.99)


@dataclass(frozen=True)
class LossScaleConfig:
    """The table ``[train.loss_scale]`` says how the loss is scaled."""

    initial: float | None = option(None, doc="first scale, a power of two (default: by format)", low=2.0**-14)
    growth_interval: int = option(2000, doc="good iterations before it doubles", low=1)
    dynamic: bool | None = option(None, doc="change it (default: with f16 and cb16)")


@dataclass(frozen=True)
class RunConfig:
    """The table ``[train]`` says how long and how a network is trained."""

    iterations: int | None = option(None, doc="updates", low=1, high=2**40)
    epochs: int | None = option(None, doc="passes over the training set, instead of iterations", low=1, high=2**31)
    evaluate: int = option(0, doc="iterations between tests on the held-out samples; 0: only at the end", low=0)
    patience: int = option(0, doc="tests without a smaller loss after which training ends; 0: never", low=0)
    accumulate: int = option(
        1, doc="parts of a batch that pass one after the other before weights are updated", low=1, high=2**20
    )
    loss: str = option(
        "cross-entropy",
        doc="what is made small: cross-entropy of classes; mse: the mean of the squared differences to targets, "
        "numbers in the place of labels",
        choices=("cross-entropy", "mse"),
    )
    label_smoothing: float = option(
        0.0, doc="share of a label's probability that is spread over all classes, in training", low=0.0, high=0.99
    )
    recompute: bool = option(
        False, doc="what lies within blocks is not kept for the way back, but computed again: less memory, more time"
    )
    clip: float | None = option(None, doc="largest norm of all gradients together (default: any)", low=0.0)
    gradient_norms: bool = option(False, doc="log the norm of each parameter's gradients, before they are clipped")
    gradient_histograms: bool = option(False, doc="log how many gradients of each parameter lie in each binade")
    dtype: str = option("f16", doc="format of weights and activations", choices=("f16", "cb16", "bf16"))
    mixed_precision: bool = option(True, doc="16-bit operands with f32 sums; there is nothing else")
    optimizer: OptimizerConfig = option(OptimizerConfig(), doc="optimizer")
    schedule: ScheduleConfig = option(ScheduleConfig(), doc="learning rate")
    loss_scale: LossScaleConfig = option(LossScaleConfig(), doc="loss scale")


@dataclass(frozen=True)
class SparsityConfig:
    """Which weights exist, and when that changes; see `harness.train.sparsity`."""

    density: float = option(1.0, doc="share of the weights that exist", low=0.0, high=1.0)
    seed: int = option(0, doc="of the masks", low=0, high=2**63 - 1)
    masks: str = option("", doc="file of first masks: .safetensors or .npz")
    schedule: str = option(
        "static", doc="how masks change", choices=("static", "pruning", "dense-finetune", "sparse-ift", "rigl", "set")
    )
    rounds: int | None = option(None, doc="of pruning: how often", low=1, high=1000)
    fraction: float | None = option(
        None, doc="of pruning, rigl, set: share of the weights that go each time", low=0.0, high=1.0
    )
    every: int | None = option(None, doc="of rigl, set: iterations between exchanges of weights (default: 100)", low=1)
    until: float | None = option(
        None, doc="of rigl, set: share of the iterations in which weights are exchanged", low=0.0, high=1.0
    )
    densities: tuple[float, ...] | None = option(
        None, doc="of pruning: densities instead of rounds and fraction", low=0.0, high=1.0
    )
    switch: float | None = option(
        None, doc="of dense-finetune: share of the iterations before all weights exist", low=0.0, high=1.0
    )


@dataclass(frozen=True)
class CheckpointConfig:
    """The table ``[checkpoint]`` says when and where checkpoints are written."""

    directory: str = option("", doc="directory (default: checkpoints in that of the run)")
    interval: int = option(0, doc="iterations between checkpoints; 0: only at the end", low=0)
    keep: int = option(3, doc="how many are kept", low=1)
    best: bool = option(False, doc="keep the weights of the test with the smallest loss, in best.npz of the run")


@dataclass(frozen=True)
class MemxConfig:
    """The table ``[memx]`` has what concerns the memory service; all its other keys are modelled numbers."""

    files: str = option("", doc="directory in which parameters lie that the modelled service keeps in flash")
    dense_rows: str = option(
        "pairs",
        doc="weights of whole rows, zeros in gaps where that is faster: two in a word, or each with its index",
        choices=("pairs", "steps"),
    )
    keep_output: bool = option(
        False, doc="weights of the last product stay on the wafers from the forward pass to the way back"
    )


@dataclass(frozen=True)
class CsConfig:
    """The table ``[csconfig]`` has the system's own switches."""

    use_cbfloat16: bool = option(False, doc="the 16-bit format with 6 exponent bits may be used")


@dataclass(frozen=True)
class TrainFile:
    """A `TrainFile` has the tables and keys of the file of ``wse train``."""

    network: NetworkConfig = option(doc="layers")
    seed: int = option(0, doc="of the first weights, and of dropout", low=0, high=2**63 - 1)
    wafers: int = option(1, doc="wafers that share a batch", low=1, high=1024)
    data: DataConfig = option(DataConfig(), doc="samples")
    mesh: MeshConfig = option(MeshConfig(), doc="PEs of each wafer")
    train: RunConfig = option(RunConfig(), doc="training")
    sparsity: SparsityConfig = option(SparsityConfig(), doc="masks")
    checkpoint: CheckpointConfig = option(CheckpointConfig(), doc="checkpoints")
    memx: MemxConfig = option(MemxConfig(), doc="memory service: modelled numbers, and where parameters lie")
    swarm: dict = option({}, doc="modelled numbers of links and tree")
    csconfig: CsConfig = option(CsConfig(), doc="the system's switches")
    mode: str = option("auto", doc="all layers on one wafer at once, or weights streamed past", choices=MODES)
    pipeline: PipelineConfig = option(PipelineConfig(), doc="of the pipelined mode")
    machine: dict = option({}, doc="preset and modelled numbers to change")
