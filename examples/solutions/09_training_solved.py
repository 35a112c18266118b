# %%
for wafers in (1, 2, 4):
    rng = np.random.default_rng(0)
    trained = wse.Trainer(
        wse.TrainConfig.of(
            wafers=wafers,
            network={"inputs": 2, "layers": [{"outputs": 24, "activation": "relu"}, {"outputs": 2}]},
            data={"batch": 32},
            mesh={"width": 2, "height": 2},
            train={"iterations": 60, "optimizer": {"name": "adam", "lr": 0.02}},
        ),
        data=batches(),
    )
    for _ in range(10):
        trained.step()
    print(f"{wafers} wafers: {trained.cycles / 10:,.0f} cycles an iteration")

# %% [markdown]
# A wafer has fewer samples when there are more wafers, but as many weights come to each. With so small a network an
# iteration is mostly waiting: for weights on their way down the tree, and for gradients on their way up.
