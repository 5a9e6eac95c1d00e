/* Every set of shared/data/quirky, tables and sparse loads with the rows and columns of a plain
 * feature set of its reference.json. */
#include "tests/unit/data/helper.h"

#define LIST_MAX 40

struct set {
    const char *path;
    struct data_settings settings;
    const char *drop[LIST_MAX]; /* NULL at the end */
    const char *missing[4];
    uint64_t rows;
    uint64_t features;
    double first; /* of feature 0 and the target, in row 0 */
    double target;
};

static const struct set sets[] = {
    {.path = "quirky/airquality/AirQualityUCI.csv",
     .settings = {.header = true,
                  .separator = ';',
                  .decimal = ',',
                  .target = DATA_TARGET_NAME,
                  .target_name = "C6H6(GT)",
                  .missing = DATA_MISSING_DROP_ROW},
     .drop = {"Date", "Time", "CO(GT)", "NMHC(GT)", "NOx(GT)", "NO2(GT)", ""},
     .missing = {"-200", "-200,0"},
     .rows = 8991,
     .features = 8,
     .first = 1360,
     .target = 11.9},
    {.path = "quirky/airquality/AirQualityUCI.csv",
     .settings = {.header = true,
                  .separator = ';',
                  .decimal = ',',
                  .target = DATA_TARGET_NAME,
                  .target_name = "C6H6(GT)",
                  .missing = DATA_MISSING_DROP_ROW},
     .drop = {"Date", "Time", "CO(GT)", "NMHC(GT)", "NOx(GT)", "NO2(GT)", ""},
     .rows = 9357,
     .features = 8,
     .first = 1360,
     .target = 11.9},
    {.path = "quirky/autompg/auto-mpg.data",
     .settings = {.format = DATA_FORMAT_SPACE,
                  .target = DATA_TARGET_FIRST,
                  .missing = DATA_MISSING_DROP_ROW},
     .drop = {"9"},
     .missing = {"?"},
     .rows = 392,
     .features = 7,
     .first = 8,
     .target = 18},
    {.path = "quirky/communities/communities.data",
     .settings = {.missing = DATA_MISSING_DROP_ROW},
     .drop = {"1",   "2",   "3",   "4",   "5",   "102", "103", "104", "105",
              "106", "107", "108", "109", "110", "111", "112", "113", "114",
              "115", "116", "117", "118", "122", "123", "124", "125", "127"},
     .missing = {"?"},
     .rows = 1993,
     .features = 100,
     .first = 0.19,
     .target = 0.2},
    {.path = "quirky/seoulbike/SeoulBikeData.csv",
     .settings = {.header = true, .target = DATA_TARGET_NAME, .target_name = "rented_bike_count"},
     .drop = {"date", "seasons", "holiday", "functioning_day"},
     .rows = 8760,
     .features = 9,
     .first = 0,
     .target = 254},
    {.path = "quirky/titanic/titanic_train.csv",
     .settings = {.header = true, .target = DATA_TARGET_NAME, .target_name = "Survived"},
     .drop = {"PassengerId", "Name", "Sex", "Age", "Ticket", "Cabin", "Embarked"},
     .rows = 891,
     .features = 4,
     .first = 3,
     .target = 0},
    {.path = "quirky/wine/winequality-red.csv",
     .settings = {.header = true, .separator = ';'},
     .rows = 1599,
     .features = 11,
     .first = 7.4,
     .target = 5},
    {.path = "quirky/wine/winequality-white.csv",
     .settings =
         {.header = true, .separator = ';', .target = DATA_TARGET_COLUMN, .target_column = 12},
     .rows = 4898,
     .features = 11,
     .first = 7,
     .target = 6},
    {.path = "sparse/a9a/a9a",
     .settings = {.format = DATA_FORMAT_SVM},
     .rows = 32561,
     .features = 123,
     .first = 0,
     .target = -1},
    {.path = "sparse/a9a/a9a.t",
     .settings = {.format = DATA_FORMAT_SVM},
     .rows = 16281,
     .features = 123,
     .first = 1,
     .target = -1},
    {.path = "sparse/cpusmall/cpusmall",
     .settings = {.format = DATA_FORMAT_SVM},
     .rows = 8192,
     .features = 12,
     .first = 6,
     .target = 90},
    {.path = "sparse/debpkg/debpkg.svm",
     .settings = {.format = DATA_FORMAT_SVM},
     .rows = 21105,
     .features = 1532,
     .first = 1,
     .target = 4.45624},
    {.path = "sparse/rcv1_small/rcv1_small.train",
     .settings = {.format = DATA_FORMAT_SVM, .features = 47236},
     .rows = 1000,
     .features = 47236,
     .first = 0,
     .target = -1},
    {.path = "sparse/w8a/w8a",
     .settings = {.format = DATA_FORMAT_SVM},
     .rows = 49749,
     .features = 300,
     .first = 0,
     .target = -1},
    {.path = "tables/airfoil/airfoil_self_noise.dat",
     .settings = {.format = DATA_FORMAT_SPACE},
     .rows = 1503,
     .features = 5,
     .first = 800,
     .target = 126.201},
    {.path = "tables/airfoil/airfoil_self_noise.dat",
     .settings = {.format = DATA_FORMAT_CSV, .separator = '\t'},
     .rows = 1503,
     .features = 5,
     .first = 800,
     .target = 126.201},
    {.path = "tables/bikehour/hour.csv",
     .settings = {.header = true},
     .drop = {"instant", "dteday", "casual", "registered"},
     .rows = 17379,
     .features = 12,
     .first = 1,
     .target = 16},
    {.path = "tables/california/california.csv",
     .settings = {.header = true,
                  .target = DATA_TARGET_NAME,
                  .target_name = "median_house_value",
                  .missing = DATA_MISSING_DROP_ROW},
     .drop = {"ocean_proximity"},
     .rows = 20433,
     .features = 8,
     .first = -122.23,
     .target = 452600},
    {.path = "tables/casp/casp.txt",
     .settings = {.format = DATA_FORMAT_SPACE},
     .rows = 45730,
     .features = 9,
     .first = 13558.3,
     .target = 17.284},
    {.path = "tables/ccpp/ccpp.txt",
     .settings = {.format = DATA_FORMAT_SPACE},
     .rows = 9568,
     .features = 4,
     .first = 8.34,
     .target = 480.48},
    {.path = "tables/concrete/concrete.txt",
     .settings = {.format = DATA_FORMAT_SPACE},
     .rows = 1030,
     .features = 8,
     .first = 540,
     .target = 79.99},
    {.path = "tables/diabetes/diabetes.csv",
     .settings = {.header = true},
     .rows = 442,
     .features = 10,
     .first = 59,
     .target = 151},
    {.path = "tables/energy/energy.txt",
     .settings = {.format = DATA_FORMAT_SPACE},
     .rows = 768,
     .features = 8,
     .first = 0.98,
     .target = 15.55},
    {.path = "tables/hflights/hflights.csv",
     .settings = {.header = true, .target = DATA_TARGET_FIRST},
     .rows = 223874,
     .features = 8,
     .first = 1,
     .target = -10},
    {.path = "tables/naval/naval.txt",
     .settings = {.format = DATA_FORMAT_SPACE, .target = DATA_TARGET_COLUMN, .target_column = 17},
     .drop = {"18"},
     .rows = 11934,
     .features = 16,
     .first = 1.138,
     .target = 0.95},
};

START_TEST(loads_with_the_rows_and_features_of_the_reference)
{
    const struct set *set = &sets[_i];
    char path[TEST_PATH_SIZE];
    char relative[TEST_PATH_SIZE / 2];
    (void)snprintf(relative, sizeof(relative), "data/%s", set->path);
    struct data_settings settings = set->settings;
    settings.drop = set->drop;
    settings.missing_values = set->missing;
    while (set->drop[settings.drop_count] != NULL) {
        settings.drop_count++;
    }
    while (set->missing[settings.missing_values_count] != NULL) {
        settings.missing_values_count++;
    }
    struct dataset *dataset = import_and_open(shared_path(path, relative), settings, "out");
    const struct dataset_info *info = dataset_info_of(dataset);
    ck_assert_msg(info->rows == set->rows && info->features == set->features, "%s: %llu x %llu",
                  set->path, (unsigned long long)info->rows, (unsigned long long)info->features);
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct dataset_targets targets = {.train = NULL};
    struct err err = {0};
    ck_assert_int_eq(dataset_load(dataset, &view, 0, 1, NULL, &block, &err), 0);
    ck_assert_int_eq(dataset_load_targets(dataset, &view, &targets, &err), 0);
    ck_assert_msg(matrix_at(&block.train, 0, 0) == (float)set->first, "%s: %g", set->path,
                  (double)matrix_at(&block.train, 0, 0));
    ck_assert_msg(targets.train[0] == set->target, "%s: %.17g", set->path, targets.train[0]);
    dataset_targets_done(&targets);
    dataset_block_done(&block);
    dataset_close(dataset);
}
END_TEST

Suite *unit_suite(void)
{
    need_shared("data/quirky");
    TCase *tests = NULL;
    Suite *suite = data_suite("sets", &tests);
    tcase_add_loop_test(tests, loads_with_the_rows_and_features_of_the_reference, 0,
                        (int)(sizeof(sets) / sizeof(sets[0])));
    return suite;
}
