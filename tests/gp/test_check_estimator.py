"""scikit-learn's own list of what an estimator owes its users.

Nearly every check brings rows of another shape, for each of which training is compiled; so most of them are slow, and
the models are those that compile quickly. Without hidden layers a deep model shares what was compiled for a single one.
"""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

pytest.importorskip("jax")

from posteriori import DeepGPClassifier, GPClassifier, kernels

SETTINGS = {
    "kernel": kernels.RBF(),
    "likelihood": "softmax",
    "n_inducing": 16,
    "learning_rate": 0.02,  # with 0.1, softmax and fewer rows than features, rounding alone makes a difference
    "max_iter": 20,
}
SINGLE, EMPTY = GPClassifier(**SETTINGS), DeepGPClassifier((), **SETTINGS)
LAYERS = DeepGPClassifier((1,), n_samples=2, **SETTINGS)
OWN_SHAPE = {  # of rows, that no other check has
    "check_classifiers_classes",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train",
    "check_class_weight_classifiers",
    "check_decision_proba_consistency",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_fit2d_1feature",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_non_transformer_estimators_n_iter",
    "check_positive_only_tag_during_fit",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_shape",
}
SHAPE_OF_FEW = {  # of rows, that a few checks share
    "check_classifier_data_not_an_array",
    "check_dont_overwrite_parameters",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_pipeline_consistency",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_pandas_series",
    "check_supervised_y_2d",
}
WEIGHTS = {f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")}


def checks():
    for model, label in ((SINGLE, "single"), (EMPTY, "no layers"), (LAYERS, "layers")):
        for estimator, check in estimator_checks_generator(model):
            name = check.func.__name__
            if model is not SINGLE and name in OWN_SHAPE - WEIGHTS:
                continue  # what is read, and how, is the same for all
            marks = [pytest.mark.slow] if name in OWN_SHAPE | SHAPE_OF_FEW or model is LAYERS else []
            if model is LAYERS and name in WEIGHTS:
                reason = "every row has samples of its own, and a row that is there twice has twice as many"
                marks.append(pytest.mark.xfail(strict=True, reason=reason))
            yield pytest.param(estimator, check, marks=marks, id=f"{label}-{name}")


@pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning", "ignore::posteriori.ApproximationWarning")
@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_sklearn_compatible(estimator, check):
    check(estimator)
