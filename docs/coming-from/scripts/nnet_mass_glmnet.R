# The R side of docs/coming-from/r.md. From this folder:
#   Rscript nnet_mass_glmnet.R > ../recorded/nnet_mass_glmnet.txt
# prints what the page shows, and writes the numbers with all digits to ../recorded/nnet_mass_glmnet.json.
suppressMessages({library(nnet); library(MASS); library(glmnet)})
options(width = 110, digits = 6)
bundled <- "../../../src/posteriori/tables/bundled"

cat("## multinom\n")
homes <- read.csv(file.path(bundled, "homes.csv.gz"))
homes$area <- homes$area_sqft / 1000
homes$heating <- homes$heating_degree_days / 1000
homes$cooling <- homes$cooling_degree_days / 1000
plain <- multinom(fuel ~ area + heating + cooling, homes, trace = FALSE, reltol = 1e-14, maxit = 1000)
print(summary(plain))

cat("\n## multinom, with weights\n")
share <- homes$weight / mean(homes$weight)
weighted <- multinom(fuel ~ area + heating + cooling, homes, weights = share, trace = FALSE, reltol = 1e-14, maxit = 1000)
print(coef(weighted))

penguins <- na.omit(read.csv(file.path(bundled, "penguins.csv"))[, 1:6])
measures <- c("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
X <- as.matrix(penguins[, measures])

cat("\n## lda and qda\n")
shown <- c(1, 74, 159, 307)
probabilities <- function(fit) predict(fit, penguins)$posterior
lda_mle <- probabilities(lda(species ~ bill_length_mm + flipper_length_mm, penguins, method = "mle"))
qda_mle <- probabilities(qda(species ~ bill_length_mm + flipper_length_mm, penguins, method = "mle"))
lda_moment <- probabilities(lda(species ~ bill_length_mm + flipper_length_mm, penguins))
cat("lda, method = \"mle\"\n"); print(round(lda_mle[shown, ], 6))
cat("qda, method = \"mle\"\n"); print(round(qda_mle[shown, ], 6))
cat("lda, as it comes\n"); print(round(lda_moment[shown, ], 6))

cat("\n## glmnet\n")
ridge <- function(...) glmnet(X, penguins$species, family = "multinomial", alpha = 0,
                              lambda = 10^seq(1, -2, length.out = 13), thresh = 1e-15, maxit = 1e7, ...)
table_of <- function(fit) t(sapply(coef(fit, s = 0.01), function(b) b[, 1]))
raw <- table_of(ridge(standardize = FALSE))
standardised <- table_of(ridge())
cat("standardize = FALSE, lambda = 0.01\n"); print(raw)
cat("standardize = TRUE (the default), lambda = 0.01\n"); print(standardised)

tenths <- seq(1, nrow(penguins), by = 10)
versions <- lapply(c(R = "base", nnet = "nnet", MASS = "MASS", glmnet = "glmnet"), function(p) as.character(packageVersion(p)))
numbers <- list(
  versions = versions,
  multinom = list(classes = rownames(coef(plain)), columns = colnames(coef(plain)), coefficients = unname(coef(plain)),
                  errors = unname(summary(plain)$standard.errors), log_likelihood = as.numeric(logLik(plain)), aic = plain$AIC),
  multinom_weighted = list(coefficients = unname(coef(weighted))),
  discriminants = list(every = 10, lda_mle = unname(lda_mle[tenths, ]), qda_mle = unname(qda_mle[tenths, ]),
                       lda_moment = unname(lda_moment[tenths, ])),
  glmnet = list(classes = rownames(raw), columns = colnames(raw), raw = unname(raw), standardised = unname(standardised))
)
writeLines(jsonlite::toJSON(numbers, digits = NA, auto_unbox = TRUE, pretty = TRUE), "../recorded/nnet_mass_glmnet.json")
cat("\n## versions\n"); cat(paste(names(versions), unlist(versions), collapse = ", "), "\n")
